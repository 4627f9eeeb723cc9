package simulate

import (
	batchv1 "k8s.io/api/batch/v1"

	"zonewise.dev/sim/kinds"
)

// applyNativeGroup leaves PodGroups of scheduling.k8s.io out, which are alpha in 1.36.
func (p *parser) applyNativeGroup(*kinds.NativePodGroup) error {
	p.leaveOut("PodGroups of scheduling.k8s.io are left out")
	return nil
}

// applyJobGroup does nothing: Jobs of 1.36 have no spec.scheduling.
func (*parser) applyJobGroup(*batchv1.Job) error { return nil }
