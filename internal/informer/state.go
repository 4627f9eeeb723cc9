package informer

import (
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// Refusal is why the API server has no objects of a kind for a reader.
type Refusal string

// The refusals.
const (
	// NotInstalled: the API server does not serve the kind.
	NotInstalled Refusal = "NotInstalled"
	// Forbidden: the reader may not list it.
	Forbidden Refusal = "Forbidden"
)

// RefusalOf returns what an error refuses, or empty if the error is nil or another one.
func RefusalOf(err error) Refusal {
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return NotInstalled
	case apierrors.IsForbidden(err):
		return Forbidden
	}
	return ""
}

// State says how the reading of a kind went.
type State struct {
	// Listed: there has been a whole list, which the handler has seen.
	Listed bool
	// Refused is what the API server has refused since it last answered about the kind; empty if nothing.
	Refused Refusal
	// Err is the last error of listing or watching, a refusal included. It is nil after a success.
	Err error
	// Since is when Err, or errors before it, began.
	Since time.Time
	// Unwatched: the kind may be listed but not watched. It is listed again about every half minute.
	Unwatched bool
}

// Served reports whether the API server serves the kind, as far as is known.
func (s *State) Served() bool { return s.Refused == Forbidden || s.Listed && s.Refused == "" }

// recordList records the result of asking for a page of a list.
func (s *State) recordList(err error, now time.Time) {
	if tooOld(err) {
		err = nil // the reflector starts over by itself
	}
	s.record(err, now)
}

// recordWatch records the result of asking for a watch.
func (s *State) recordWatch(err error, now time.Time) {
	switch {
	case RefusalOf(err) == Forbidden:
		s.Unwatched = true // a list follows, and says whether that is all
	case !s.Listed && understood(err):
		// The server cannot send a first list through a watch. A list follows.
	case err == nil:
		s.Unwatched = false
		s.record(nil, now)
	case tooOld(err):
		s.record(nil, now)
	default:
		s.record(err, now)
	}
}

func (s *State) record(err error, now time.Time) {
	if err != nil && s.Err == nil {
		s.Since = now
	}
	s.Err = err
	if refusal := RefusalOf(err); err == nil || refusal != "" {
		s.Refused = refusal
	}
}

// tooOld reports whether the API server does not have the version any more that it was asked for.
func tooOld(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// understood reports whether the API server has understood a request and does not serve it.
func understood(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError
}
