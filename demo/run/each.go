package run

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// workers is how many requests the demo has under way at a time.
const workers = 8

// each calls do for every item, several at a time, and returns the first
// error. After an error or the context's end no further item is begun.
func each[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, item := range items {
		if working.Err() != nil {
			break
		}
		group.Go(func() error { return do(working, item) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}
