package sim

import (
	"reflect"

	resourcev1 "k8s.io/api/resource/v1"
	draapi "k8s.io/dynamic-resource-allocation/api"
)

// storedAs returns the type that a copy has the objects in that an informer shows as of a type: ResourceSlices are
// converted.
func storedAs(shown reflect.Type) reflect.Type {
	if shown == reflect.TypeFor[*draapi.ResourceSlice]() {
		return reflect.TypeFor[*resourcev1.ResourceSlice]()
	}
	return shown
}
