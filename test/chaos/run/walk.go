package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"zonewise.dev/test/chaos"
	"zonewise.dev/test/chaos/judge"
)

// walk plays the cells of all rows whose names contain a text: each at the first write of the scheduler, at the second, and so on, up to
// one that the scheduler does not reach.
func walk(ctx context.Context, rows string, most int, scheduler string) (err error) {
	var o chaos.Options
	if err := complete(&o, scheduler, "views"); err != nil {
		return err
	}
	logf := o.Logf
	o.Logf = func(string, ...any) {}
	table, err := chaos.NewTable(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.Close()) }()
	cells, failed := 0, 0
	for _, row := range chaos.Rows() {
		if rows != "all" && !strings.Contains(row.String(), rows) {
			continue
		}
		for n := 1; n <= most; n++ {
			cell, start := row.At(n), time.Now()
			record, reached, err := table.Play(cell)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err == nil && !reached {
				break
			}
			cells++
			said := "in order"
			switch {
			case err != nil:
				said = err.Error()
			case judge.Failed(judge.All(record)):
				chaos.Summarize(os.Stdout, record, judge.All(record))
				said = "not in order"
			}
			if said != "in order" {
				failed++
			}
			logf("%s: %s after %s", cell, said, time.Since(start).Round(100*time.Millisecond))
		}
	}
	fmt.Printf("%d cells, %d not in order\n", cells, failed)
	if cells == 0 {
		return fmt.Errorf("no row's name contains %q", rows)
	}
	if failed > 0 {
		return errors.New("the schedulers have not kept what the design promises")
	}
	return nil
}
