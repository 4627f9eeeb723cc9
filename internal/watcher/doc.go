// Package watcher keeps the objects of one kind current, whether or not the API server serves the kind.
//
// A [Watcher] lists and watches as an informer of client-go does, with three differences:
//
//   - While the API server does not serve the kind, it is asked again within 10 seconds. An informer's pauses grow to a minute.
//   - A request that gets no answer ends.
//   - [Watcher.State] says how the reading went: what has been listed, what is refused, since when there has been no answer.
//
// There is one goroutine and one copy of the objects for each kind. Handlers are called by that goroutine, with no
// queue between.
package watcher
