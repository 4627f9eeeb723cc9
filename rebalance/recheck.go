package rebalance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/sim"
)

// Recheck says why moves of a plan, made together, would not go as planned in the cluster as it is now; empty if they
// would. It makes them in a copy of that cluster, which is none of it afterwards: a fork would cost more than all
// else. Of a move it uses Namespace, Name, UID, From and To. An error is that of ctx or of the copy.
func Recheck(ctx context.Context, now *sim.Sim, options Options, moves []Move) (why string, err error) {
	now.SetPatience(BindTime)
	if err := now.Run(ctx); err != nil {
		return "", err
	}
	c := &copyState{sim: now, options: options, standing: StandingOf(now, options)}
	var batch []candidate
	for i := range moves {
		m := &moves[i]
		pod, ok := sim.Get[*v1.Pod](c.sim, m.Namespace, m.Name)
		if !ok || pod.UID != m.UID {
			return fmt.Sprintf("pod %s/%s is gone", m.Namespace, m.Name), nil
		}
		set, ok := c.standing.setToLeave(pod, m.From)
		if !ok {
			return fmt.Sprintf("pod %s/%s is not one too many in zone %s, or may not be moved", m.Namespace, m.Name, m.From), nil
		}
		batch = append(batch, candidate{target: target{m.Workload, m.From}, pod: pod, set: set})
	}
	v, err := c.move(ctx, batch)
	if err != nil {
		return "", err
	}
	for i := range moves {
		m := &moves[i]
		if why := v.why(i); why != "" {
			return fmt.Sprintf("pod %s/%s: %s", m.Namespace, m.Name, why), nil
		}
		if !slices.Contains(m.To, v.to[i]) {
			return fmt.Sprintf("pod %s/%s: its replacement would be in zone %s, not in %s",
				m.Namespace, m.Name, v.to[i], strings.Join(m.To, " or ")), nil
		}
	}
	return "", nil
}

// setToLeave returns the set of rules by which a pod that may be moved is one too many in its zone.
func (s *Standing) setToLeave(pod *v1.Pod, zone string) (set string, ok bool) {
	for _, r := range s.rules {
		if r.selected && r.carries(pod, zone) && r.table.Above(zone) > 0 {
			return r.set, true
		}
	}
	return "", false
}
