package kinds

import (
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newDeviceTaintRule returns an empty object of the version that the scheduler reads.
func newDeviceTaintRule() client.Object { return &resourcev1.DeviceTaintRule{} }
