package sim

import "k8s.io/kubernetes/pkg/scheduler/framework/preemption"

// preemptionCandidate is what preemption may choose: a node and the pods there that would go.
type preemptionCandidate = preemption.Candidate
