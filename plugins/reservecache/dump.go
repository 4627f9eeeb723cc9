package reservecache

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"

	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/serve"
)

// dumper writes the ledger to the log on the signal on which kube-scheduler dumps its own cache, and
// compares it with the stores of the informers at once and with the scheduler's snapshot in the next
// scheduling cycle, outside of which a snapshot must not be read.
type dumper struct {
	ledger     *ledger.Ledger
	floor      *cycleFloor
	comparison *comparison
	factory    informers.SharedInformerFactory
}

// listen dumps at each signal until ctx ends.
func (d *dumper) listen(ctx context.Context) {
	if len(dumpSignals) == 0 {
		return
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, dumpSignals...)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
				d.dump(klog.FromContext(ctx))
			}
		}
	}()
}

func (d *dumper) dump(logger klog.Logger) {
	dump := d.ledger.Dump()
	var held map[string]ledger.Resources
	d.floor.Read(func(f *floor.Floor, _ serve.Settled) { held = f.HeldOn() })
	for _, n := range dump.Nodes {
		logger.Info("Dump of the ledger", "node", klog.KRef("", n.Name), "ghost", n.Ghost, "zone", n.Zone,
			"requested", n.Requested, "allocatable", n.Allocatable, "generation", n.Generation, "pods", describePods(n.Pods),
			"held", held[n.Name])
	}
	differences, err := compareWithStores(dump, d.factory)
	if err != nil {
		logger.Error(err, "Could not compare the ledger with the informers")
	} else {
		logger.Info("Compared the ledger with the informers", "nodes", len(dump.Nodes), "pods", len(dump.Pods()), "differences", differences)
	}
	d.comparison.request()
}

func describePods(pods []ledger.PodStatus) string {
	lines := make([]string, 0, len(pods))
	for _, p := range pods {
		lines = append(lines, fmt.Sprintf("%s/%s uid=%s state=%s", p.Pod.Namespace, p.Pod.Name, p.Pod.UID, p.State))
	}
	return strings.Join(lines, ", ")
}

// compareWithStores compares a dump with what the informers hold at this moment, and returns what differs, sorted, in
// words. An event that the ledger is about to hear of shows as a difference, so that only one that stays is a fault.
func compareWithStores(dump ledger.Dump, factory informers.SharedInformerFactory) ([]string, error) {
	nodes, err := factory.Core().V1().Nodes().Lister().List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	pods, err := factory.Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return compareDump(dump, nodes, pods), nil
}

// compareDump compares a dump with the nodes and pods that an informer holds. An assumed pod is expected to have no
// node there yet.
func compareDump(dump ledger.Dump, nodes []*v1.Node, all []*v1.Pod) []string {
	theirs := map[string]*contents{}
	sideOf := func(name string) *contents {
		if theirs[name] == nil {
			theirs[name] = &contents{}
		}
		return theirs[name]
	}
	for _, n := range nodes {
		c := sideOf(n.Name)
		c.exists, c.allocatable = true, ledger.ResourcesOf(n.Status.Allocatable)
	}
	known := dump.Pods()
	for _, pod := range all {
		name := pod.Spec.NodeName
		if p := known[pod.UID]; name == "" && p.State == ledger.Assumed {
			name = p.Node
		}
		if name != "" && !pods.Ended(pod) {
			c := sideOf(name)
			c.pods = append(c.pods, pod)
		}
	}
	differences := []string{}
	compare := func(name string, ours *contents) {
		compareContents(ours, sideOf(name), "the informer", func(*v1.Pod) bool { return false }, func(d difference) {
			differences = append(differences, "node "+name+": "+d.String())
		})
		delete(theirs, name)
	}
	for i := range dump.Nodes {
		n := &dump.Nodes[i]
		ours := contents{exists: !n.Ghost, allocatable: n.Allocatable}
		for j := range n.Pods {
			ours.pods = append(ours.pods, n.Pods[j].Pod)
		}
		compare(n.Name, &ours)
	}
	for name := range theirs {
		compare(name, &contents{})
	}
	slices.Sort(differences)
	return differences
}
