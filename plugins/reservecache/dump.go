package reservecache

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"k8s.io/klog/v2"

	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/serve"
)

// dumper writes the ledger to the log on the signal on which kube-scheduler dumps its own cache, and has the next
// scheduling cycle compare it with the scheduler's snapshot.
type dumper struct {
	ledger     *ledger.Ledger
	floor      *cycleFloor
	comparison *comparison
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
	d.comparison.request()
}

func describePods(pods []ledger.PodStatus) string {
	lines := make([]string, 0, len(pods))
	for _, p := range pods {
		lines = append(lines, fmt.Sprintf("%s/%s uid=%s state=%s", p.Pod.Namespace, p.Pod.Name, p.Pod.UID, p.State))
	}
	return strings.Join(lines, ", ")
}
