package survival

import (
	"context"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/message"
	"zonewise.dev/sim"
)

// maxFollowed is how many pods may have changed for an answer to follow: beyond that it saves little.
const maxFollowed = 2000

// A Certifier answers the same ZoneSurvivals again and again. It keeps a copy of the cluster after the loss of each
// zone, whose Node objects stay. When nothing but pods and their controllers has changed, these copies can follow, and
// only the pods that have changed are placed. The zero value is ready. Its methods are not safe for concurrent use.
type Certifier struct {
	// followed are the generations, by UID, of the ZoneSurvivals whose answers can follow: they were True when all losses
	// were replayed, and in all copies since.
	followed map[types.UID]int64
	objects  map[objectKey]client.Object
	kept     map[string]*replayer
	at       metav1.Time // of the cluster that was replayed in full
}

type objectKey struct {
	kind            reflect.Type
	namespace, name string
}

func keyOf(obj client.Object) objectKey {
	return objectKey{reflect.TypeOf(obj), obj.GetNamespace(), obj.GetName()}
}

// Close gives the copies back.
func (k *Certifier) Close() {
	for _, s := range k.kept {
		s.close()
	}
	*k = Certifier{}
}

// Certify replays all losses, as the function does.
func (k *Certifier) Certify(
	ctx context.Context, objects []client.Object, asked []*v1alpha1.ZoneSurvival, options Options,
) ([]v1alpha1.ZoneSurvivalStatus, error) {
	k.Close()
	certificates := make([]*certificate, len(asked))
	for i, s := range asked {
		certificates[i] = newCertificate(s)
	}
	var failed *metav1.Condition
	if len(options.Missing) > 0 {
		failed = ptr.To(unknownCondition(v1alpha1.ReasonSnapshotIncomplete, strings.Join(options.Missing, "; ")))
	} else {
		var err error
		k.kept, err = replayAll(ctx, objects, certificates, &options)
		if err != nil {
			failed = ptr.To(unknownCondition(v1alpha1.ReasonReplayFailed, message.OneLine(err)))
		}
	}
	if ctx.Err() != nil {
		k.Close()
		return nil, context.Cause(ctx)
	}
	k.at = metav1.Time{Time: options.Sim.Now}
	for _, c := range certificates {
		c.status.ReplayedAt = k.at
	}
	out := statusesOf(certificates, objects, &options, failed)
	k.objects, k.followed = objectsByKey(objects), map[types.UID]int64{}
	for i, s := range asked {
		if s.Spec.Survive.Nodes == nil && survives(&out[i]) {
			k.followed[s.UID] = s.Generation
		}
	}
	return out, nil
}

func objectsByKey(objects []client.Object) map[objectKey]client.Object {
	out := make(map[objectKey]client.Object, len(objects))
	for _, obj := range objects {
		out[keyOf(obj)] = obj
	}
	return out
}

// survives reports whether a status is an answer that is True.
func survives(status *v1alpha1.ZoneSurvivalStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionSurvives)
}

// Follow answers for a cluster that differs little from the one before: the copies after the loss of each zone follow
// it. That is one replay in which the changed pods come last, where Certify replays each loss several times and in both
// forms. So it may break an answer that was True, or keep it. All others have no answer by their UIDs: those that were
// not True, those for the loss of nodes, and those that are new or have another spec. It returns false if no answer can
// follow. An error is that of ctx.
func (k *Certifier) Follow(
	ctx context.Context, objects []client.Object, asked []*v1alpha1.ZoneSurvival, options Options,
) (answers map[types.UID]v1alpha1.ZoneSurvivalStatus, followed bool, err error) {
	asked = slices.DeleteFunc(slices.Clone(asked), func(s *v1alpha1.ZoneSurvival) bool {
		generation, follows := k.followed[s.UID]
		return !follows || generation != s.Generation
	})
	if len(asked) == 0 || len(options.Missing) > 0 {
		return nil, false, nil
	}
	now := objectsByKey(objects)
	d := k.compareWith(now)
	if d == nil || len(d.pods) > maxFollowed {
		return nil, false, nil
	}
	read := newReading(objects)
	placed := read.placed()
	certificates := make([]*certificate, len(asked))
	for i, s := range asked {
		certificates[i] = newCertificate(s)
		certificates[i].recordBaseline(read)
		if slices.ContainsFunc(certificates[i].zones, func(zone string) bool { return k.kept[zone] == nil }) {
			return nil, false, nil
		}
	}
	for zone, s := range k.kept {
		l := loss{zone: zone}
		if err := s.followChanges(ctx, d); err != nil {
			k.Close() // a copy may have followed in part
			if ctx.Err() != nil {
				return nil, false, context.Cause(ctx)
			}
			return nil, false, nil
		}
		all := sim.List[*v1.Pod](s.copy)
		r := &outcome{
			nodes: len(s.lost), moves: s.movesOf(placed, all), rooms: usageOf(sim.List[*v1.Node](s.copy), all).zones,
		}
		for _, c := range certificates {
			if slices.Contains(c.zones, zone) {
				c.recordOutcome(l, s.form, r, nil)
			}
		}
	}
	k.objects = now
	answers = map[types.UID]v1alpha1.ZoneSurvivalStatus{}
	for i, status := range statusesOf(certificates, objects, &options, nil) {
		status.ReplayedAt = k.at
		if !survives(&status) {
			delete(k.followed, asked[i].UID)
		}
		answers[asked[i].UID] = status
	}
	return answers, true, nil
}

// differences are what has changed between two clusters, if a copy can follow it.
type differences struct {
	pods []sim.Change[*v1.Pod]
	put  []client.Object // controllers
}

// compareWith compares with the cluster before. It returns nil if a copy cannot follow.
func (k *Certifier) compareWith(now map[objectKey]client.Object) *differences {
	d := &differences{}
	for key, obj := range now {
		if old := k.objects[key]; old != obj && !d.note(old, obj) {
			return nil
		}
	}
	for key, old := range k.objects {
		if now[key] == nil && !d.note(old, nil) {
			return nil
		}
	}
	slices.SortFunc(d.pods, func(a, b sim.Change[*v1.Pod]) int { return compareByName(eitherOf(a), eitherOf(b)) })
	return d
}

func eitherOf(c sim.Change[*v1.Pod]) *v1.Pod {
	if c.After != nil {
		return c.After
	}
	return c.Before
}

// note notes a change, and reports whether a copy can follow it. Either object may be nil.
func (d *differences) note(before, after client.Object) bool {
	either := after
	if either == nil {
		either = before
	}
	switch either.(type) {
	case *v1.Pod:
		var c sim.Change[*v1.Pod]
		c.Before, _ = before.(*v1.Pod)
		c.After, _ = after.(*v1.Pod)
		if c.Before == nil || c.After == nil || c.Before.UID != c.After.UID ||
			!slices.Equal(decisiveState(c.Before), decisiveState(c.After)) {
			d.pods = append(d.pods, c)
		}
		return true
	case *appsv1.Deployment, *appsv1.ReplicaSet, *appsv1.StatefulSet, *appsv1.DaemonSet, *batchv1.Job, *v1.ReplicationController:
		if after != nil {
			d.put = append(d.put, after)
		}
		return true
	case *v1alpha1.ZoneSurvival:
		return true
	}
	if before == nil || after == nil || before.GetUID() != after.GetUID() {
		return false
	}
	switch o := after.(type) {
	case *policyv1.PodDisruptionBudget: // the copy counts for itself
		return before.GetGeneration() == after.GetGeneration()
	case *v1alpha1.ZoneSpreadPolicy: // and so does the policy
		old, ok := before.(*v1alpha1.ZoneSpreadPolicy)
		return ok && old.Generation == o.Generation &&
			slices.EqualFunc(old.Status.Zones, o.Status.Zones, func(a, b v1alpha1.ZoneStatus) bool {
				return a.Name == b.Name && a.State == b.State && a.RecoveringSince.Equal(b.RecoveringSince) &&
					a.Since.Equal(b.Since) && len(a.Full) == len(b.Full)
			})
	}
	return slices.Equal(decisiveState(before), decisiveState(after))
}

// followChanges makes the copy, in which a loss has been replayed, one of a cluster that has changed. Pods that took
// the place of lost ones on a node that another pod has got in the cluster are placed again, as are the changed pods of
// lost nodes.
func (s *replayer) followChanges(ctx context.Context, d *differences) error {
	for _, obj := range d.put {
		if err := s.copy.Put(obj); err != nil {
			return err
		}
	}
	inPlaceOf := s.successorsOf(sim.List[*v1.Pod](s.copy))
	replaced := s.copy.Replaced()
	guests := map[string][]*v1.Pod{} // by node
	for _, pod := range inPlaceOf {
		if (replaced[pod.UID] != nil || s.replaced[pod.UID] != nil) && pod.Spec.NodeName != "" {
			guests[pod.Spec.NodeName] = append(guests[pod.Spec.NodeName], pod)
		}
	}
	gone := map[types.UID]bool{}
	remove := func(pod *v1.Pod) {
		s.copy.Remove(pod)
		gone[pod.UID] = true
	}
	for _, c := range d.pods {
		if c.Before == nil {
			continue
		}
		if there, ok := sim.Get[*v1.Pod](s.copy, c.Before.Namespace, c.Before.Name); ok && there.UID == c.Before.UID {
			remove(there)
		}
		if there := inPlaceOf[c.Before.UID]; there != nil && !gone[there.UID] {
			remove(there)
		}
	}
	fails := map[string]bool{}
	for _, c := range d.pods {
		pod := c.After
		if pod == nil || ended(pod) {
			continue
		}
		if node := pod.Spec.NodeName; s.isDead(node) {
			fails[node] = true
		} else {
			here := guests[node]
			slices.SortFunc(here, compareByName)
			for _, guest := range here {
				if !gone[guest.UID] {
					s.copy.Displace(guest)
				}
			}
			delete(guests, node)
		}
		if err := s.copy.Put(pod); err != nil {
			return err
		}
	}
	if len(fails) > 0 { // once more, for the pods that are new there
		s.copy.Fail(func(node *v1.Node) bool { return fails[node.Name] })
	}
	return s.copy.Run(ctx)
}
