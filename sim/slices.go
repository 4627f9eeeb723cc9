package sim

import "k8s.io/client-go/informers"

// viewSlices adds the informer by which the scheduler reads ResourceSlices, if it is another one than that of their API
// type.
func viewSlices(informers.SharedInformerFactory, *store) {}
