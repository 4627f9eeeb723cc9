package simulate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/status"
	"zonewise.dev/internal/nodes"
	"zonewise.dev/internal/pods"
	"zonewise.dev/survival"
)

// Certificate is what a ZoneSurvival of the cluster says about the loss that is simulated.
type Certificate struct {
	Name string `json:"name"`
	// AgeSeconds is how old the certificate is.
	AgeSeconds int64 `json:"ageSeconds"`
	// Displaced protected pods lose their place. Of these, Waiting would wait by the certificate, and WaitingHere wait
	// in the simulation.
	Displaced   int64 `json:"displaced"`
	Waiting     int64 `json:"waiting"`
	WaitingHere int64 `json:"waitingHere"`
	// Agrees is true if all of them run again by both, or some wait by both.
	Agrees bool `json:"agrees"`
	// NodesStay: they wait, by the certificate, only while the lost nodes' objects exist.
	NodesStay bool `json:"nodesStay,omitempty"`
	age       string
}

// isAbout reports whether a scenario is the loss that a certificate is about: of one zone, or of the same nodes, and
// nothing else.
func (s *Scenario) isAbout(loss *v1alpha1.SurvivalLoss) bool {
	if len(s.addedNodes()) > 0 || s.Added != nil || s.Return || len(s.Drained) > 0 {
		return false
	}
	if loss.Zone != "" {
		return len(s.Nodes) == 0 && slices.Equal(s.Zones, []string{loss.Zone})
	}
	return len(s.Zones) == 0 && slices.Equal(s.Nodes, []string{loss.Node})
}

// compareCertificates compares a loss with what the cluster's ZoneSurvivals say about it.
func (p *scenarioRun) compareCertificates(scenario *Scenario, before, after *census.Census) {
	for _, object := range snapshot.Sorted[*v1alpha1.ZoneSurvival](p.cluster.Snapshot, "") {
		answer := status.SurvivalOf(object, p.cluster.Now)
		protects, err := survival.Protected(object)
		at := slices.IndexFunc(answer.Losses, func(loss v1alpha1.SurvivalLoss) bool { return scenario.isAbout(&loss) })
		if err != nil || answer.State == status.Unknown || at < 0 {
			continue // it says nothing about this loss
		}
		c := Certificate{
			Name: answer.Name, AgeSeconds: answer.AgeSeconds, age: answer.Age(), Displaced: answer.Losses[at].Displaced, Waiting: answer.Losses[at].Waiting,
			WaitingHere: p.countRunning(before, protects) - p.countRunning(after, protects), NodesStay: answer.Losses[at].NodesStay,
		}
		c.Agrees = (c.Waiting > 0) == (c.WaitingHere > 0)
		p.result.Certificates = append(p.result.Certificates, c)
	}
}

// countRunning counts protected pods that have a node. Those that waited before the loss do not count, as in a
// certificate.
func (p *scenarioRun) countRunning(c *census.Census, protects func(*corev1.Pod) bool) int64 {
	running := int64(0)
	for _, pod := range c.Pods {
		if pod.On != nil && !p.waited[pod.UID] && pods.Live(pod.Pod) && nodes.Ready(pod.On.Node) && protects(pod.Pod) {
			running++
		}
	}
	return running
}

func (c *Certificate) writeText(p *show.Page) {
	verdict, color := "agrees", show.Faint
	if !c.Agrees {
		verdict, color = "disagrees", show.Yellow
	}
	when := ""
	if c.NodesStay {
		when = " while the lost nodes still exist"
	}
	p.Para(2, color, "ZoneSurvival %s, %s ago, %s: %d of %d displaced pods would wait%s, %d here", c.Name, c.age, verdict, c.Waiting, c.Displaced, when, c.WaitingHere)
}
