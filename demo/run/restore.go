package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/demo/workload"
)

// rounds bounds how often the services are evened out. One does it; the board judges what is left uneven.
const rounds = 3

// restore brings a zone back: its nodes are opened, and what the other zones have too much of is evicted, as a
// descheduler would, so that the scheduler fills the zone again.
func (d *demo) restore(ctx context.Context, zone string) error {
	if err := d.uncordon(ctx, zone); err != nil {
		return err
	}
	for range rounds {
		nodes, pods := d.seen.lists()
		going := surplus(d.plan.Zones, nodes, pods)
		if len(going) == 0 {
			return nil
		}
		for wave := range slices.Chunk(going, (len(going)+waves-1)/waves) {
			if err := each(ctx, wave, d.evict); err != nil {
				return err
			}
			if err := d.untilGone(ctx, wave); err != nil {
				return err
			}
			if err := d.settle(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// untilGone waits until none of the pods is there any more.
func (d *demo) untilGone(ctx context.Context, going []*corev1.Pod) error {
	uids := make(map[types.UID]bool, len(going))
	for _, pod := range going {
		uids[pod.UID] = true
	}
	return d.until(ctx, func() string {
		_, pods := d.seen.lists()
		for _, pod := range pods {
			if uids[pod.UID] {
				return fmt.Sprintf("pod %s/%s is still there", pod.Namespace, pod.Name)
			}
		}
		return ""
	})
}

// surplus returns the pods of services that have to go for each service to be even over the zones, by service and
// name. A service of 4 pods over 3 zones is even with 2, 1 and 1.
func surplus(zones []string, nodes []*corev1.Node, pods []*corev1.Pod) []*corev1.Pod {
	zoneOf := make(map[string]string, len(nodes))
	for _, n := range nodes {
		zoneOf[n.Name] = n.Labels[corev1.LabelTopologyZone]
	}
	type service struct{ app, role string }
	byService := map[service]map[string][]*corev1.Pod{}
	for _, pod := range pods {
		zone := zoneOf[pod.Spec.NodeName]
		if pod.Namespace != workload.ServiceNamespace || zone == "" || pod.DeletionTimestamp != nil {
			continue
		}
		s := service{pod.Labels[workload.AppLabel], pod.Labels[workload.RoleLabel]}
		if byService[s] == nil {
			byService[s] = map[string][]*corev1.Pod{}
		}
		byService[s][zone] = append(byService[s][zone], pod)
	}
	var out []*corev1.Pod
	for _, of := range byService {
		total := 0
		for _, zone := range zones {
			total += len(of[zone])
		}
		// Those with the most keep the odd pods: nobody moves who need not.
		order := slices.SortedFunc(slices.Values(zones), func(a, b string) int {
			return cmp.Or(cmp.Compare(len(of[b]), len(of[a])), strings.Compare(a, b))
		})
		for i, zone := range order {
			share := total / len(zones)
			if i < total%len(zones) {
				share++
			}
			if len(of[zone]) > share {
				slices.SortFunc(of[zone], func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
				out = append(out, of[zone][share:]...)
			}
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out
}
