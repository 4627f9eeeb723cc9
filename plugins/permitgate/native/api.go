package native

// The types of the conditions of PodGroups.
const (
	// ConditionFits is False while the gang cannot be placed, with the reason; True once it has been placed after that.
	ConditionFits = "zonewise.dev/Fits"
	// ConditionPacked is False while the PodGroup's annotation of how to pack the gang does not apply.
	ConditionPacked = "zonewise.dev/Packed"
	// ConditionReleased is True when minCount members have been bound together, False since a rollback.
	ConditionReleased = "zonewise.dev/Released"
	// ConditionPartlyBound is True while the gang stays bound in part.
	ConditionPartlyBound = "zonewise.dev/PartlyBound"
	// ConditionGuarded is False for a PodGroup of which something is not guarded: it is part of a composite group, and
	// the scheduler does not know these, or it has claims that members share.
	ConditionGuarded = "zonewise.dev/Guarded"
)

// Mode says what becomes of native gangs.
type Mode string

// The modes.
const (
	// Guard: they bind whole or not at all.
	Guard Mode = "Guard"
	// Ignore: they are left to kube-scheduler.
	Ignore Mode = "Ignore"
)
