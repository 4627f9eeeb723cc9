package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all custom resources of Zonewise.
const GroupName = "zonewise.dev"

// SchemeGroupVersion is the group and version of the types of this package.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

var (
	// SchemeBuilder collects what AddToScheme does; another file of the package may add its types to it.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the types of this package with a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

// Resource qualifies a resource name, such as "zonespreadpolicies", with the group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&ZoneSpreadPolicy{}, &ZoneSpreadPolicyList{}, &ZoneReservation{}, &ZoneReservationList{}, &ZoneSurvival{}, &ZoneSurvivalList{},
		&ZoneRebalance{}, &ZoneRebalanceList{})
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
