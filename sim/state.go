package sim

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// State is a copy of a cluster at rest, without a scheduler: it has the objects, of which other States, Sims and
// informers share those that are the same. It does not change.
type State struct {
	objects []client.Object
	options Options
	serial  int
}

// State returns the objects as they are now. It may be used when the Sim is closed.
func (s *Sim) State() *State {
	options := s.options
	options.Now, options.Pods = s.Now(), nil
	return &State{objects: s.store.objects(), options: options, serial: s.serial}
}

// Objects returns the objects, which must not be modified.
func (s *State) Objects() []client.Object { return s.objects }

// Fork returns a Sim in this state, with its own scheduler. Objects are shared, so it costs only the time and memory of
// the scheduler's and the plugins' caches.
func (s *State) Fork(ctx context.Context, change func(*Options)) (*Sim, error) {
	options := s.options
	if change != nil {
		change(&options)
	}
	fork, err := New(ctx, s.objects, options)
	if err != nil {
		return nil, err
	}
	fork.serial = s.serial // the names that it stands for are taken
	return fork, nil
}

// Fork returns another Sim in the state of this one, as State.Fork does.
func (s *Sim) Fork(ctx context.Context, change func(*Options)) (*Sim, error) {
	return s.State().Fork(ctx, change)
}

// Objects returns all objects as they are now. They must not be modified.
func (s *Sim) Objects() []client.Object { return s.store.objects() }
