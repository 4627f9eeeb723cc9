package permitgate

// starving is what is remembered of a gang that collects room.
type starving struct{}
