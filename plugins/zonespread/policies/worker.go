package policies

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Keys of the queue that are no policy's UID.
const (
	nodes   types.UID = "(nodes)"
	orphans types.UID = "(pods of deleted policies)"
)

// work looks at policies until the queue is shut down. It is the only goroutine that calls the scheduling queue.
func (s *Policies) work(ctx context.Context) {
	for {
		uid, shutdown := s.queue.Get()
		if shutdown {
			return
		}
		switch uid {
		case nodes:
			s.observeNodes()
		case orphans:
			s.activate(ctx, "a policy was deleted", s.takeOrphans())
		default:
			s.process(ctx, uid)
		}
		s.queue.Done(uid)
	}
}

// process looks at one policy: what its timer says, whether its waiting pods are to be woken, when to look again.
func (s *Policies) process(ctx context.Context, uid types.UID) {
	pods, again := s.look(uid)
	s.activate(ctx, "a policy or what it depends on has changed", pods)
	if again > 0 {
		s.queue.AddAfter(uid, again)
	}
}

// look does what needs the lock, and returns the pods to wake and when to look again, 0 for never.
func (s *Policies) look(uid types.UID) (wake []*v1.Pod, again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[uid]
	if !ok {
		return nil, 0
	}
	now := s.clock.Now()
	if e.policy != nil {
		sums := map[string]int64{}
		for _, zones := range s.placedLocked(e) {
			for zone, n := range zones {
				sums[zone] += n
			}
		}
		e.machine.ObserveCounts(now, sums)
		if replicas := e.policy.Replicas(s.demandLocked(e, nil), nil); replicas != e.replicas {
			e.wake = e.wake || e.replicas >= 0
			e.replicas = replicas
		}
		if !e.next.At.IsZero() && !e.next.At.After(now) {
			e.wake = e.wake || e.next.Wakes
		}
		e.next, _ = e.machine.NextDeadline(now)
		if !e.next.At.IsZero() {
			// The machine's times are whole seconds; a timer that is early would find nothing to do.
			again = max(e.next.At.Sub(now), time.Millisecond)
		}
	}
	s.statusQueue.AddAfter(uid, statusPause)
	if e.wake {
		e.wake = false
		wake = e.pods.waiting()
		e.pods.former = nil
	}
	return wake, again
}

func (s *Policies) takeOrphans() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	pods := s.orphans
	s.orphans = nil
	return pods
}

// activate sends waiting pods back to the scheduling queue, without a lock held.
func (s *Policies) activate(ctx context.Context, because string, pods []*v1.Pod) {
	s.mu.Lock()
	ours := make(map[string]*v1.Pod, len(pods))
	for _, pod := range pods {
		if s.profiles[pod.Spec.SchedulerName] {
			ours[pod.Namespace+"/"+pod.Name] = pod
		}
	}
	h := s.handle
	s.mu.Unlock()
	if len(ours) == 0 {
		return
	}
	logger := klog.FromContext(ctx)
	logger.V(4).Info("Activating pods", "pods", len(ours), "because", because)
	h.Activate(logger, ours)
}
