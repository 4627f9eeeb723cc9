package sim

import "reflect"

// storedAs returns the type that a copy has the objects in that an informer shows as of a type.
func storedAs(shown reflect.Type) reflect.Type { return shown }
