package live

import (
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/informer"
	"zonewise.dev/internal/message"
)

// kind is one kind of a cluster that is followed.
type kind struct {
	*informer.Observed
	resource string
	needed   bool
	// otherVersions are those in which the API server serves the kind if it does not as it was asked for; nil while it
	// does. The API server is asked once when the kind is refused.
	otherVersions atomic.Pointer[string]
}

func (l *Live) newKind(c client.WithWatch, described snapshot.Kind) *kind {
	tell := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { l.signalChange() }, UpdateFunc: func(_, _ any) { l.signalChange() },
		DeleteFunc: func(any) { l.signalChange() },
	}
	k := &kind{resource: described.Resource, needed: described.Needed}
	var sharing snapshot.Sharing // lives as long as the informer
	k.Observed = informer.New(informer.Config{
		Client: c, Example: described.Example(), List: described.List(), Trim: sharing.Trim, Handler: tell,
		StateChanged: func() {
			if k.State().Refused != informer.NotInstalled {
				k.otherVersions.Store(nil)
			} else if k.otherVersions.Load() == nil {
				k.otherVersions.Store(ptr.To(snapshot.OtherVersions(c, k.resource)))
			}
			l.stateChanged(k)
		},
	})
	return k
}

// readingState says how the reading of a kind went.
type readingState struct {
	informer.State
	// known: the kind has been listed, or need not be since the API server has refused.
	known bool
	// missing: it is left out of snapshots, since the API server refuses it.
	missing bool
}

func (k *kind) readState() readingState {
	state := k.State()
	missing := state.Refused != "" && !k.needed
	return readingState{State: state, known: state.Listed || missing, missing: missing}
}

// isFailing reports whether the API server should answer about the kind and does not.
func (r *readingState) isFailing() bool { return r.Err != nil && !r.missing }

// missingKind returns what a snapshot of that time has to say about a kind, if anything.
func (l *Live) missingKind(k *kind, r *readingState, now time.Time) (snapshot.Missing, bool) {
	lack := snapshot.Missing{Resource: k.resource}
	switch {
	case r.missing:
		lack.Reason = string(r.Refused)
		if versions := ptr.Deref(k.otherVersions.Load(), ""); versions != "" {
			lack.Reason, lack.Detail = snapshot.OtherVersion, versions
		}
	case !r.known && now.Sub(l.began) >= l.patience:
		lack.Reason, lack.Detail = snapshot.Unreadable, "the API server does not answer"
		if r.Err != nil {
			lack.Detail = message.OneLine(r.Err)
		}
	case r.known && r.isFailing() && now.Sub(r.Since) >= l.patience:
		lack.Reason, lack.Detail = snapshot.Outdated, fmt.Sprintf("%s: %s", clockTime(r.Since), message.OneLine(r.Err))
	default:
		return lack, false
	}
	return lack, true
}

func clockTime(t time.Time) string { return t.UTC().Format("15:04:05 MST") }
