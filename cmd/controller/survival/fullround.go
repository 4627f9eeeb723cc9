package survival

import (
	"context"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/apis/v1alpha1"
	declared "zonewise.dev/cmd/controller/survival/metrics"
	"zonewise.dev/sim"
	"zonewise.dev/survival"
)

// fullRound replays all losses in steps of a fraction of a second, between which other parts get their turns. What
// happens to the cluster meanwhile is shown at the part's own turns, and is no part of the round.
type fullRound struct {
	question string
	began    time.Time // by the clock
	readAt   time.Time
	// step goes on until the next pause, and reports whether there was one; stop ends the round, also before its end.
	step func() (struct{}, bool)
	stop func()
	// answers are there once step has returned false, unless err is not nil.
	answers map[types.UID]v1alpha1.ZoneSurvivalStatus
	err     error
}

// beginRound begins a full round for what a look has read.
func (c *Controller) beginRound(ctx context.Context, r *round, question string) {
	c.fullBudget.Begin(time.Now())
	f := &fullRound{question: question, began: time.Now(), readAt: r.options.Sim.Now, answers: map[types.UID]v1alpha1.ZoneSurvivalStatus{}}
	ctx, cancel := context.WithCancel(ctx)
	f.step, f.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer cancel()
		options, runs := r.options, true
		options.Sim.Progress = func(sim.Progress) {
			if runs && !yield(struct{}{}) {
				runs = false
				cancel()
			}
		}
		if len(r.asked) == 0 {
			c.certifier = survival.Certifier{}
			return
		}
		statuses, err := c.certifier.Certify(ctx, r.objects, r.asked, options)
		f.err = err
		for i := range statuses {
			f.answers[r.asked[i].UID] = statuses[i]
		}
	})
	c.running = f
}

// step does a step of the full round that runs, and reports whether there is another one. An error is that of the
// round, which is over: the next look begins another one.
func (c *Controller) step(ctx context.Context) (more bool, err error) {
	f := c.running
	if f == nil {
		return false, nil
	}
	if _, more := f.step(); more {
		return true, nil
	}
	c.running = nil
	if f.err != nil {
		return false, f.err
	}
	c.lastRound, c.answered, c.fullRoundAt, c.fullRoundTook = f.question, f.question, f.readAt, time.Since(f.began)
	for uid, status := range f.answers {
		c.setAnswer(uid, status)
	}
	if len(f.answers) > 0 {
		klog.FromContext(ctx).V(2).Info(
			"Replayed losses", "zonesurvivals", len(f.answers), "took", c.fullRoundTook, "cpu", c.fullBudget.Used(),
		)
		declared.RoundDuration.Observe(c.fullRoundTook.Seconds())
	}
	return false, nil
}
