package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// server answers one request after the other: a status, or 0 for a connection that is refused. The last answer is for
// all that come later.
type server struct {
	answers []int
	asked   []time.Time
}

func (s *server) RoundTrip(*http.Request) (*http.Response, error) {
	answer := s.answers[min(len(s.asked), len(s.answers)-1)]
	s.asked = append(s.asked, time.Now())
	if answer == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: answer, Body: io.NopCloser(strings.NewReader("said"))}, nil
}

// TestRetryWatches: a watch waits for an API server that is away or starting, and hears of everything else.
func TestRetryWatches(t *testing.T) {
	const watch, list = "/api/v1/pods?watch=true&resourceVersion=7", "/api/v1/pods"
	for _, c := range []struct {
		name, url string
		answers   []int
		asks      int
		status    int // 0: an error
	}{
		{"at once", watch, []int{200}, 1, 200},
		{"refused twice", watch, []int{0, 0, 200}, 3, 200},
		{"then without its roles", watch, []int{0, 403, 503, 401, 404, 200}, 6, 200},
		{"without a permission", watch, []int{403}, 1, 403},
		{"too old", watch, []int{0, 410}, 2, 410},
		{"not a watch", list, []int{0, 200}, 1, 0},
		{"not any more", "/api/v1/pods?watch=false", []int{0, 200}, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{answers: c.answers}
				transport := (&retries{ctx: t.Context()}).around(s)
				response, err := transport.RoundTrip(httptest.NewRequest(http.MethodGet, c.url, http.NoBody))
				require.Len(t, s.asked, c.asks)
				if c.status == 0 {
					require.Error(t, err)
					return
				}
				require.NoError(t, err)
				require.Equal(t, c.status, response.StatusCode)
				said, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				require.Equal(t, "said", string(said), "the answer is not read before the client does")
				for i := 1; i < len(s.asked); i++ {
					pause := s.asked[i].Sub(s.asked[i-1])
					require.GreaterOrEqual(t, pause, retryInterval)
					require.LessOrEqual(t, pause, 2*retryInterval)
				}
			})
		})
	}
}

// TestRetryWatchesEnds: an informer hears of an API server that stays away, of one that goes on refusing, and ends at
// once.
func TestRetryWatchesEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watch := httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=1", http.NoBody)
		start := time.Now()
		_, err := (&retries{ctx: t.Context()}).around(&server{answers: []int{0}}).RoundTrip(watch)
		require.Error(t, err)
		require.InDelta(t, retryLimit, time.Since(start), float64(2*retryInterval))

		start = time.Now()
		response, err := (&retries{ctx: t.Context()}).around(&server{answers: []int{0, 403}}).RoundTrip(watch)
		require.NoError(t, err)
		require.Equal(t, http.StatusForbidden, response.StatusCode)
		require.InDelta(t, startGrace, time.Since(start), float64(2*retryInterval))

		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Second, func() { cancel(errors.New("enough")) })
		start = time.Now()
		_, err = (&retries{ctx: t.Context()}).around(&server{answers: []int{0}}).RoundTrip(watch.WithContext(ctx))
		require.ErrorContains(t, err, "enough")
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}
