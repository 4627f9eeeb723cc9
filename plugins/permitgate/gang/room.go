package gang

import "time"

// maxHaste bounds the growth of Config.RoomPause: to 16 times its value.
const maxHaste = 4

// collectPause is the pause of a gang that collects room piece by piece: whoever comes first has it.
const collectPause = 10 * time.Millisecond

// SetCollects says whether the gang keeps what room it finds until there is enough. Each new piece of room is then
// looked at without delay.
func (g *Gang) SetCollects(collects bool) { g.planning.collects = collects }

// Room says that room was made in the cluster. A gang that was rolled back for want of it starts its
// next round at once, or RoomPause after the rollback when that is later.
func (g *Gang) Room(now time.Time) {
	g.roomAt = now
	if g.phase == Backoff && g.lastCause.capacity() {
		g.retryAt(now)
	}
	g.settle(now)
}

// membersChanged ends a backoff early: another set of members may fit.
func (g *Gang) membersChanged(now time.Time) {
	if g.phase == Backoff {
		g.retryAt(now)
	}
}

// retryAt moves the end of the backoff to the earliest time allowed from now on: RoomPause after the
// rollback, and twice as long with each round that such haste has wasted. Without that, a busy cluster,
// where room is made all the time, would see no backoff at all.
func (g *Gang) retryAt(now time.Time) {
	pause := g.config.RoomPause << min(g.hasty, maxHaste)
	if g.planning.collects {
		pause = collectPause
	}
	at := g.rolledBack.Add(pause)
	if at.Before(now) {
		at = now
	}
	if at.Before(g.until) {
		g.until = at
		g.early = true
	}
}
