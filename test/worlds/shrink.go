package worlds

import (
	"reflect"
	"slices"
	"time"
)

// Shrink returns a smaller world of which fails still says true: with fewer steps, and with steps that ask for less. It
// plays worlds until no smaller one is found or patience is over.
func Shrink(w World, patience time.Duration, fails func(World) bool) World {
	end, progress := time.Now().Add(patience), true
	try := func(smaller World) bool {
		if time.Now().After(end) || !fails(smaller) {
			return false
		}
		w, progress = smaller, true
		return true
	}
	for progress {
		progress = false
		for i := range slices.Backward(w.AtRest) {
			smaller := w
			smaller.AtRest = slices.Concat(w.AtRest[:i], w.AtRest[i+1:])
			try(smaller)
		}
		removeSteps(&w, try)
		for i := range w.Steps {
			for _, step := range simpler(w.Steps[i]) {
				try(w.with(i, step))
			}
		}
		if w.Native {
			smaller := w
			smaller.Native = false
			try(smaller)
		}
	}
	return w
}

// removeSteps removes ever shorter runs of steps, from the end.
func removeSteps(w *World, try func(World) bool) {
	for run := max(len(w.Steps)/2, 1); run >= 1; run /= 2 {
		for end := len(w.Steps); end > 0; end -= run {
			begin := max(end-run, 0)
			if end > len(w.Steps) {
				continue
			}
			smaller := *w
			smaller.Steps = slices.Delete(slices.Clone(w.Steps), begin, end)
			try(smaller)
		}
	}
}

func (w World) with(i int, step Step) World {
	w.Steps = slices.Clone(w.Steps)
	w.Steps[i] = step
	return w
}

// simpler returns steps that ask for less in one field.
func simpler(s Step) (steps []Step) {
	original := reflect.ValueOf(s)
	var visit func(path []int, v reflect.Value)
	visit = func(path []int, v reflect.Value) {
		for i := range v.NumField() {
			field, at := v.Field(i), append(slices.Clone(path), i)
			if field.Kind() == reflect.Struct {
				visit(at, field)
				continue
			}
			for _, value := range smaller(field, v.Type().Field(i).Name) {
				changed := reflect.New(original.Type()).Elem()
				changed.Set(original)
				changed.FieldByIndex(at).Set(value)
				steps = append(steps, changed.Interface().(Step))
			}
		}
	}
	visit(nil, original)
	return steps
}

// needed are fields without which a step says nothing.
var needed = []string{"Name", "Zone", "Node", "Workload", "Kind"}

// smaller returns values to try for a field.
func smaller(field reflect.Value, name string) (values []reflect.Value) {
	if field.IsZero() || slices.Contains(needed, name) {
		return nil
	}
	switch field.Kind() {
	case reflect.Int, reflect.Int32:
		if n := field.Int(); n > 1 {
			values = append(values, reflect.ValueOf(n-1).Convert(field.Type()), reflect.ValueOf(int64(1)).Convert(field.Type()))
		} else if name != "CPU" && name != "Replicas" && name != "Slots" && name != "MaxSkew" {
			values = append(values, reflect.Zero(field.Type()))
		}
	case reflect.Int64: // a duration
		if d := time.Duration(field.Int()); d > time.Second {
			values = append(values, reflect.ValueOf(d/2).Convert(field.Type()), reflect.ValueOf(time.Second))
		}
	default:
		values = append(values, reflect.Zero(field.Type()))
	}
	return values
}
