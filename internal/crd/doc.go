// Package crd watches custom resources that may not be installed, compiles them, and writes their status.
//
// kube-scheduler waits for every informer that a plugin names in EventsToRegister or takes from the
// shared factory before it schedules the first pod, so that one missing CustomResourceDefinition would
// leave a cluster without a scheduler. This package therefore keeps watches of its own: [Watch]
// returns at once, lists the kind in the background from the time that the API server serves
// it, and notices when it is removed. The plugin decides what to do meanwhile; [Kind] tells it
// whether the kind is served.
//
//   - A [Source] is where the objects are: [Connect] reaches an API server, crdtest.New one in memory.
//   - [Watch] delivers the objects of one kind.
//   - [Object] is an object and the compiled form of its spec.
//   - [Writer] keeps the status of the objects of one kind as the leader wants it, namespace by namespace in turns.
//
// The package does not wake pods: a plugin's event handler does that, with Activate.
package crd
