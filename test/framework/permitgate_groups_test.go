package framework

import (
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/test/crdtest"
)

// groups are the PodGroups, and all other custom resources.
type groups struct {
	*crdtest.Source

	mu      sync.Mutex // guards created
	created int
}

func newGroups() *groups { return &groups{Source: crdtest.New()} }

func (g *groups) get(name string) (*v1alpha1.PodGroup, bool) {
	return crdtest.Get(g.Source, &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
}

// set creates or changes a PodGroup; a timeout is optional, in seconds.
func (g *groups) set(name string, minMember int32, timeout ...int32) {
	g.edit(name, func(group *v1alpha1.PodGroup) {
		group.Spec.MinMember = minMember
		if len(timeout) > 0 {
			group.Spec.ScheduleTimeoutSeconds = &timeout[0]
		}
	})
}

// edit creates or changes a PodGroup.
func (g *groups) edit(name string, f func(group *v1alpha1.PodGroup)) {
	group, exists := g.get(name)
	if !exists {
		g.mu.Lock()
		g.created++
		group.UID = types.UID(fmt.Sprintf("group-%d", g.created))
		group.CreationTimestamp = metav1.Time{Time: time.Unix(int64(g.created), 0)}
		g.mu.Unlock()
	}
	f(group)
	g.Put(group)
}

// annotate changes a PodGroup's annotations.
func (g *groups) annotate(name string, annotations map[string]string) {
	g.edit(name, func(group *v1alpha1.PodGroup) { group.Annotations = annotations })
}

func (g *groups) delete(name string) {
	group, _ := g.get(name)
	g.Delete(group)
}

// status returns a PodGroup's status.
func (g *groups) status(name string) v1alpha1.PodGroupStatus {
	group, _ := g.get(name)
	return group.Status
}
