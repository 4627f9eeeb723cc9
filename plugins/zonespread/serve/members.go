package serve

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
)

// members are the live pods that a policy selects, from the informers.
type members struct {
	facts     map[types.UID]fact
	gangs     map[string]int // pods by gang, see policy.GroupBy
	inGangs   int            // pods of all gangs
	templates map[string]*template

	filled bool   // the pods that existed when the spec was seen are there
	seen   bool   // the policy's zones have been shown the nodes
	openTo string // the template that they were shown the nodes by
}

// fact is the stored part of one pod.
type fact struct {
	revision string
	gang     string
	node     string
	owner    reference
	template *template
}

// reference names the controller of a pod.
type reference struct {
	kind, name string
	uid        types.UID
}

// template is what decides which nodes are open to a pod. Pods share those that are alike.
type template struct {
	key      string // empty when all nodes that are ready and not cordoned are
	eligible counts.Eligibility
	// cordoned is true if the pods tolerate the taint of cordoned nodes.
	cordoned bool
	pods     int
	newest   time.Time // creation of the newest pod, ever
}

func newMembers() *members {
	return &members{facts: map[types.UID]fact{}, gangs: map[string]int{}, templates: map[string]*template{}}
}

func ownerOf(o metav1.Object) reference {
	c := metav1.GetControllerOfNoCopy(o)
	if c == nil {
		return reference{}
	}
	return reference{kind: c.Kind, name: c.Name, uid: c.UID}
}

// live reports whether a pod counts at all.
func live(pod *v1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed
}

var cordonTaint = v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}

// templateOf returns the template of a pod, with the parts that the policy honors.
func templateOf(p *policy.Policy, pod *v1.Pod, comparisonOperators bool) *template {
	t := &template{
		eligible: counts.EligibilityOf(pod, p.HonorsAffinity(), p.HonorsTaints(), comparisonOperators),
		cordoned: corev1helpers.TolerationsTolerateTaint(klog.Logger{}, pod.Spec.Tolerations, &cordonTaint, comparisonOperators),
	}
	t.key = counts.KeyOf(t.eligible)
	if t.cordoned {
		t.key += "/cordoned"
	}
	return t
}

// take adds or updates a live, selected pod. It returns whether that changed anything.
func (m *members) take(p *policy.Policy, pod *v1.Pod, comparisonOperators bool) bool {
	f := fact{revision: p.Revision(pod.Labels), gang: pod.Labels[p.GroupBy()], node: pod.Spec.NodeName, owner: ownerOf(pod)}
	was, known := m.facts[pod.UID]
	if known {
		// The template does not change while a pod lives, except that tolerations may be added.
		f.template = was.template
		if was == f {
			return false
		}
	}
	m.lose(pod.UID)
	t := templateOf(p, pod, comparisonOperators)
	if same := m.templates[t.key]; same != nil {
		t = same
	}
	m.templates[t.key] = t
	t.pods++
	if created := pod.CreationTimestamp.Time; created.After(t.newest) {
		t.newest = created
	}
	f.template = t
	m.facts[pod.UID] = f
	if f.gang != "" {
		m.gangs[f.gang]++
		m.inGangs++
	}
	return true
}

// lose removes a pod. It returns whether it was there.
func (m *members) lose(uid types.UID) bool {
	f, ok := m.facts[uid]
	if !ok {
		return false
	}
	delete(m.facts, uid)
	if f.template.pods--; f.template.pods == 0 {
		delete(m.templates, f.template.key)
	}
	if f.gang != "" {
		m.inGangs--
		if m.gangs[f.gang]--; m.gangs[f.gang] == 0 {
			delete(m.gangs, f.gang)
		}
	}
	return true
}

// matching returns how many pods there are, or how many gangs and pods without a gang.
func (m *members) matching() int64 {
	return int64(len(m.facts) - m.inGangs + len(m.gangs))
}

// matchingWith is matching with a pod that the informer may not have shown yet.
func (m *members) matchingWith(uid types.UID, gang string) int64 {
	n := m.matching()
	if _, known := m.facts[uid]; !known && m.gangs[gang] == 0 {
		n++
	}
	return n
}

// newest returns the template of the newest pod, or one that excludes no nodes if there is no pod.
func (m *members) newest() *template {
	newest := &template{}
	first := true
	for _, t := range m.templates {
		if first || t.newest.After(newest.newest) || t.newest.Equal(newest.newest) && t.key < newest.key {
			newest, first = t, false
		}
	}
	return newest
}
