package reservecache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/placement"
)

// dumper writes the ledger to the log on the signal on which kube-scheduler dumps its own cache, and
// compares it with the stores of the informers at once and with the scheduler's snapshot in the next
// scheduling cycle, outside of which a snapshot must not be read.
type dumper struct {
	ledger  *ledger.Ledger
	holds   *holds.Holds
	drift   *driftDetector
	factory informers.SharedInformerFactory
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
	for _, n := range dump.Nodes {
		logger.Info("Dump of the ledger", "node", klog.KRef("", n.Name), "ghost", n.Ghost, "zone", n.Zone,
			"requested", n.Requested, "allocatable", n.Allocatable, "generation", n.Generation, "pods", describePods(n.Pods),
			"holds", describeHolds(d.holds.Node(n.Name)))
	}
	differences, err := compareWithStores(dump, d.factory)
	if err != nil {
		logger.Error(err, "Could not compare the ledger with the informers")
	} else {
		logger.Info("Compared the ledger with the informers", "nodes", len(dump.Nodes), "pods", len(dump.Pods()), "differences", differences)
	}
	d.drift.logNext()
}

func describePods(pods []ledger.PodStatus) string {
	lines := make([]string, 0, len(pods))
	for _, p := range pods {
		lines = append(lines, fmt.Sprintf("%s/%s uid=%s state=%s", p.Pod.Namespace, p.Pod.Name, p.Pod.UID, p.State))
	}
	return strings.Join(lines, ", ")
}

func describeHolds(n *holds.NodeHolds) string {
	if n == nil {
		return ""
	}
	lines := make([]string, 0, len(n.Holds))
	for i := range n.Holds {
		h := &n.Holds[i]
		words := []string{h.Claim.Name + ": " + describePart(h.Claim, &h.Amount)}
		if !h.Claim.Amounts {
			words = append(words, "slots")
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return strings.Join(lines, ", ")
}

// describePart describes a part of what a claim holds: a number of slots, or an amount.
func describePart(claim *holds.Claim, part *ledger.Resources) string {
	if claim.Amounts {
		return placement.Words(part)
	}
	return fmt.Sprint(part.Pods)
}

// Compare compares the ledger with what the informers of the scheduler hold at this moment, and returns
// what differs, sorted, in words. An event that the ledger is about to hear of shows as a difference, so
// that only one that stays is a fault. It must not be called before the informers have started.
func (s *Shared) Compare() ([]string, error) {
	r := s.get()
	if r == nil {
		return nil, errors.New("no profile has enabled the plugin")
	}
	return compareWithStores(r.ledger.Dump(), r.dumper.factory)
}

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

// compareDump compares a dump with the nodes and pods that an informer holds.
func compareDump(dump ledger.Dump, nodes []*v1.Node, pods []*v1.Pod) []string {
	differences := []string{}
	differ := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }

	missing := map[string]bool{}
	for _, n := range nodes {
		missing[n.Name] = true
	}
	for _, n := range dump.Nodes {
		if !n.Ghost && !missing[n.Name] {
			differ("node %s is in the ledger only", n.Name)
		}
		if !n.Ghost {
			delete(missing, n.Name)
		}
	}
	for name := range missing {
		differ("node %s is in the informer only", name)
	}

	byUID := make(map[types.UID]*v1.Pod, len(pods))
	for _, pod := range pods {
		byUID[pod.UID] = pod
	}
	known := dump.Pods()
	for uid, p := range known {
		pod := byUID[uid]
		switch {
		case pod == nil:
			differ("pod %s is in the ledger only", klog.KObj(p.Pod))
		case p.State == ledger.Added && pod.Spec.NodeName != p.Node:
			differ("pod %s is on node %q in the ledger and on %q in the informer", klog.KObj(p.Pod), p.Node, pod.Spec.NodeName)
		case p.State == ledger.Assumed && pod.Spec.NodeName != "":
			differ("pod %s is assumed on node %q in the ledger and bound to %q in the informer", klog.KObj(p.Pod), p.Node, pod.Spec.NodeName)
		}
	}
	for uid, pod := range byUID {
		_, has := known[uid]
		if !has && pod.Spec.NodeName != "" && !ledger.Terminal(pod) {
			differ("pod %s is in the informer only", klog.KObj(pod))
		}
	}
	slices.Sort(differences)
	return differences
}
