// Package crd watches custom resources that may not be installed.
//
// kube-scheduler waits for every informer that a plugin names in EventsToRegister or takes from the
// shared factory before it schedules the first pod, so that one missing CustomResourceDefinition would
// leave a cluster without a scheduler. This package therefore keeps watches of its own: [Cache.Watch]
// returns at once, looks for the kind in the background, starts the informer when the API server serves
// it, and notices when it is taken away. What a plugin does meanwhile is its own decision, with
// [Kind.Available] and [Kind.HasSynced] to base it on.
//
// The package does not wake pods: a plugin's event handler does that, with Activate.
package crd
