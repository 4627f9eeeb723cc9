package survival

import (
	"context"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/message"
)

// A Certifier answers the same ZoneSurvivals again and again. Of the replays it keeps no copy of the cluster, but where
// the displaced pods went: when only pods and their controllers have changed, one replay of each loss tries these
// nodes first, which is cheap. The zero value is ready. Its methods are not safe for concurrent use.
type Certifier struct {
	// followed are the generations, by UID, of the ZoneSurvivals whose answers can follow: they were True when all
	// losses were replayed, and in all replays since.
	followed map[types.UID]int64
	// steady is the digest of what has to be the same for an answer to follow.
	steady string
	places map[string]places // by zone
	at     metav1.Time       // of the cluster that was replayed in full
}

// places are the nodes that displaced pods have come to, by the UIDs of those, in the worst order of the loss of a zone
// whose Node objects stay.
type places map[types.UID]string

func (p places) of(pod *v1.Pod) string { return p[pod.UID] }

// Certify replays all losses, as the function does.
func (k *Certifier) Certify(
	ctx context.Context, objects []client.Object, asked []*v1alpha1.ZoneSurvival, options Options,
) ([]v1alpha1.ZoneSurvivalStatus, error) {
	*k = Certifier{followed: map[types.UID]int64{}, places: map[string]places{}}
	certificates := newCertificates(asked)
	var failed *metav1.Condition
	if len(options.Missing) > 0 {
		failed = ptr.To(unknownCondition(v1alpha1.ReasonSnapshotIncomplete, strings.Join(options.Missing, "; ")))
	} else if err := replayAll(ctx, objects, certificates, &options, k.places); err != nil {
		failed = ptr.To(unknownCondition(v1alpha1.ReasonReplayFailed, message.OneLine(err)))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	k.at, k.steady = metav1.Time{Time: options.Sim.Now}, steadyDigest(objects)
	for _, c := range certificates {
		c.status.ReplayedAt = k.at
	}
	out := statusesOf(certificates, objects, &options, failed)
	for i, s := range asked {
		if s.Spec.Survive.Nodes == nil && survives(&out[i]) {
			k.followed[s.UID] = s.Generation
		}
	}
	return out, nil
}

// survives reports whether a status is an answer that is True.
func survives(status *v1alpha1.ZoneSurvivalStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionSurvives)
}

// Follow answers for a cluster in which only pods and their controllers have changed. Each loss of a zone is
// replayed once, in the worst order and while the Node objects stay, and the scheduler tries for each pod first the
// node that it came to before. If a protected pod then waits, the loss is replayed as Certify does first, and that
// decides. So Follow may break an answer that was True, or keep it. All others have no answer by their UIDs: those that
// were not True, those for the loss of nodes, and those that are new or have another spec. It returns false if no
// answer can follow. An error is that of ctx.
func (k *Certifier) Follow(
	ctx context.Context, objects []client.Object, asked []*v1alpha1.ZoneSurvival, options Options,
) (answers map[types.UID]v1alpha1.ZoneSurvivalStatus, followed bool, err error) {
	asked = slices.DeleteFunc(slices.Clone(asked), func(s *v1alpha1.ZoneSurvival) bool {
		generation, follows := k.followed[s.UID]
		return !follows || generation != s.Generation
	})
	if len(asked) == 0 || len(options.Missing) > 0 || steadyDigest(objects) != k.steady {
		return nil, false, nil
	}
	certificates := newCertificates(asked)
	if err := k.replayAgain(ctx, objects, certificates, &options); err != nil {
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		return nil, false, nil
	}
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

// replayAgain replays the loss of each zone once, and notes where the displaced pods go now.
func (k *Certifier) replayAgain(
	ctx context.Context, objects []client.Object, certificates []*certificate, options *Options,
) error {
	p, err := newRound(ctx, objects, certificates, options)
	if err != nil {
		return err
	}
	wanted := p.wantedByZone()
	for _, zone := range slices.Sorted(maps.Keys(wanted)) {
		l := loss{zone: zone}
		r, err := p.newReplayer(nodesStay, 0, k.places[zone]).replayOnce(ctx, l)
		if err == nil && r.anyWaits(wanted[zone]) {
			r, err = p.newReplayer(nodesStay, 0, nil).replayOnce(ctx, l)
		}
		if err != nil {
			return err
		}
		for _, c := range wanted[zone] {
			c.recordOutcome(l, nodesStay, r, nil)
		}
		k.places[zone] = r.places()
	}
	return nil
}
