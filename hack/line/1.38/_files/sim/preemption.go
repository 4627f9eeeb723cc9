package sim

import fwk "k8s.io/kube-scheduler/framework"

// preemptionCandidate is what preemption may choose: a node and the pods there that would go.
type preemptionCandidate = fwk.PreemptionCandidate
