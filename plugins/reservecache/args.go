package reservecache

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"zonewise.dev/internal/args"
)

// ReserveCacheArgs configures the plugin. All profiles of one scheduler must give the same, since they
// share the ledger.
type ReserveCacheArgs struct {
	metav1.TypeMeta `json:",inline"`

	// HandlerSyncTimeout bounds how long a scheduling cycle waits for the ledger to have seen all pods and
	// nodes that existed at start. After it the cycle fails with an error and the pod is retried. More
	// than 0; 30s by default.
	HandlerSyncTimeout metav1.Duration `json:"handlerSyncTimeout,omitempty"`
	// MaxHeldFraction bounds what ZoneReservations hold together: a slot more is held in a zone as long as the unused
	// slots of all reservations there are at most that part of what the zone's nodes offer, of each resource.
	// Above 0, at most 1, which is no bound; 0.5 by default.
	MaxHeldFraction float64 `json:"maxHeldFraction,omitempty"`
}

// DeepCopyObject lets a program that embeds the scheduler pass the args as an object.
func (a *ReserveCacheArgs) DeepCopyObject() runtime.Object {
	if a == nil {
		return nil
	}
	c := *a
	return &c
}

// defaultArgs returns the args of a profile that gives none.
func defaultArgs() ReserveCacheArgs {
	return ReserveCacheArgs{
		HandlerSyncTimeout: metav1.Duration{Duration: 30 * time.Second},
		MaxHeldFraction:    0.5,
	}
}

// decodeArgs reads, defaults and validates the args of a profile. The error is one line that names the
// fields.
func decodeArgs(obj runtime.Object) (ReserveCacheArgs, error) {
	a := defaultArgs()
	if err := args.Decode(Name, obj, &a); err != nil {
		return a, err
	}
	// The kind is accepted, but two profiles do not differ by giving it or not.
	a.TypeMeta = metav1.TypeMeta{}
	return a, args.Invalid(Name, a.validate())
}

func (a *ReserveCacheArgs) validate() field.ErrorList {
	var errs field.ErrorList
	if d := a.HandlerSyncTimeout.Duration; d <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("handlerSyncTimeout"), d.String(), "must be more than 0"))
	}
	if f := a.MaxHeldFraction; !(f > 0 && f <= 1) {
		errs = append(errs, field.Invalid(field.NewPath("maxHeldFraction"), f, "must be above 0 and at most 1"))
	}
	return errs
}
