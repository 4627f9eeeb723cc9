package informer

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	start     = time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	resource  = schema.GroupResource{Resource: "things"}
	forbidden = apierrors.NewForbidden(resource, "", errors.New("no"))
	absent    = apierrors.NewNotFound(resource, "")
	errBroken = errors.New("connection refused")
)

func TestWhatRequestsSayAboutAKind(t *testing.T) {
	type request struct {
		err   error
		watch bool
	}
	for _, tc := range []struct {
		name     string
		requests []request
		want     State
		served   bool
	}{
		{
			"a kind that is not installed",
			[]request{{absent, true}, {absent, false}},
			State{Refused: NotInstalled, Err: absent, Since: start.Add(time.Second)},
			false,
		},
		{
			"one that may not be listed",
			[]request{{forbidden, true}, {forbidden, false}},
			State{Refused: Forbidden, Err: forbidden, Since: start.Add(time.Second), Unwatched: true},
			true,
		},
		{
			"one that may be listed alone",
			[]request{{forbidden, true}, {nil, false}, {forbidden, true}},
			State{Unwatched: true},
			false,
		},
		{"and then watched too", []request{{forbidden, true}, {nil, true}}, State{}, false},
		{
			"a server that cannot send a list through a watch is asked for a list",
			[]request{{apierrors.NewBadRequest("sendInitialEvents"), true}, {nil, false}},
			State{},
			false,
		},
		{
			"a connection that fails",
			[]request{{errBroken, true}, {errBroken, false}},
			State{Err: errBroken, Since: start},
			false,
		},
		{"and is back", []request{{errBroken, false}, {nil, false}}, State{Since: start}, false},
		{
			"a version that is gone is no fault",
			[]request{{apierrors.NewResourceExpired("old"), true}, {apierrors.NewResourceExpired("old"), false}},
			State{},
			false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := State{}
			for i, r := range tc.requests {
				record := s.recordList
				if r.watch {
					record = s.recordWatch
				}
				record(r.err, start.Add(time.Duration(i)*time.Second))
			}
			require.Equal(t, tc.want, s)
			require.Equal(t, tc.served, s.Served())
		})
	}
}

// TestAWatchThatIsRefusedLater: once there has been a list, the end of a kind shows in its watch.
func TestAWatchThatIsRefusedLater(t *testing.T) {
	s := State{Listed: true}
	require.True(t, s.Served())
	s.recordWatch(absent, start)
	require.Equal(t, State{Listed: true, Refused: NotInstalled, Err: absent, Since: start}, s)
	require.False(t, s.Served())
}

func TestRefusalOf(t *testing.T) {
	require.Equal(t, NotInstalled, RefusalOf(&meta.NoKindMatchError{}))
	require.Equal(t, NotInstalled, RefusalOf(absent))
	require.Equal(t, Forbidden, RefusalOf(forbidden))
	require.Empty(t, RefusalOf(errBroken))
	require.Empty(t, RefusalOf(nil))
}
