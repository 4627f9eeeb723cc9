package kinds

import (
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newDeviceTaintRule returns an empty object of the version that the scheduler reads.
func newDeviceTaintRule() client.Object { return &resourcev1beta2.DeviceTaintRule{} }
