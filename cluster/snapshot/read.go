package snapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/sim/kinds"
)

// pageSize is how many objects one request asks for: a page of pods is a few megabytes.
const pageSize = 1000

// NewClient returns a client for the API server behind config, with the rate limit of interactive tools.
func NewClient(config *rest.Config) (client.WithWatch, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	return client.NewWithWatch(config, client.Options{Scheme: kinds.Scheme})
}

// Progress takes how many objects have been read. It is called from one goroutine at a time.
type Progress func(objects int)

// Read takes a snapshot, trimmed. progress may be nil. It fails only if nodes or pods cannot be read, or the API server
// cannot be reached; other kinds that are not installed, that may not be read, or that the API server fails to read are
// left out, see Snapshot.Missing.
func Read(ctx context.Context, c client.Client, progress Progress) (*Snapshot, error) {
	r := &reader{client: c, progress: progress, snapshot: New(time.Now().UTC())}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(6)
	for _, k := range slices.Backward(readable) { // pods first: there are most of them
		group.Go(func() error { return r.readKind(ctx, k) })
	}
	group.Go(func() error { return r.readLeases(ctx) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	s := r.snapshot
	slices.SortFunc(s.Leases, func(a, b Lease) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Missing, func(a, b Missing) int { return strings.Compare(a.Resource, b.Resource) })
	return s, nil
}

// reader is what the reads of one snapshot share.
type reader struct {
	client   client.Client
	progress Progress

	mu       sync.Mutex // guards what follows
	objects  int
	snapshot *Snapshot
}

// readKind reads all objects of a kind, in pages.
func (r *reader) readKind(ctx context.Context, k Kind) error {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		page := k.List()
		if err := r.client.List(ctx, page, client.Limit(options.Limit), client.Continue(options.Continue)); err != nil {
			return nil, err
		}
		r.addRead(meta.LenList(page))
		return page, ForEach(page, Trim)
	})
	list, _, err := pages.List(ctx, metav1.ListOptions{Limit: pageSize})
	switch {
	case err == nil:
		r.mu.Lock()
		defer r.mu.Unlock()
		return ForEach(list, func(obj client.Object) { r.snapshot.Add(obj) })
	case k.Needed || ctx.Err() != nil:
		return fmt.Errorf("list %s: %w", k.Resource, err)
	}
	lack := missingOf(k.Resource, err)
	if lack.Reason == NotInstalled {
		if versions := OtherVersions(r.client, k.Resource); versions != "" {
			lack.Reason, lack.Detail = OtherVersion, versions
		}
	}
	r.addMissing(lack)
	return nil
}

func (r *reader) addMissing(lack Missing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snapshot.Missing = append(r.snapshot.Missing, lack)
}

// OtherVersions returns the versions in which an API server serves a resource that it does not serve as it was asked
// for; empty if there are none.
func OtherVersions(c client.Client, resource string) string {
	served, err := c.RESTMapper().ResourcesFor(schema.ParseGroupResource(resource).WithVersion(""))
	if err != nil {
		return ""
	}
	var versions []string
	for _, r := range served {
		versions = append(versions, r.Version)
	}
	slices.Sort(versions)
	return strings.Join(slices.Compact(versions), ", ")
}

// ForEach calls do for each object of a list.
func ForEach(list runtime.Object, do func(client.Object)) error {
	return meta.EachListItem(list, func(item runtime.Object) error {
		do(item.(client.Object)) //nolint:forcetypeassert // the kinds are of objects
		return nil
	})
}

func (r *reader) addRead(objects int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects += objects
	if r.progress != nil {
		r.progress(r.objects)
	}
}
