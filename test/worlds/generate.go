package worlds

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// New returns the world of a seed.
func New(seed uint64) World {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), zones: []string{"a", "b", "c"}}
	g.world.Native = g.chance(25)
	g.drawCluster()
	for range 5 + g.IntN(15) {
		if g.chance(25) {
			g.drawPlot()
		} else {
			g.step(g.drawChange())
		}
		g.step(Wait{g.drawPause()})
	}
	g.addMishaps(seed)
	g.addDevices(seed)
	g.addLateLeader(seed)
	g.addRest(seed)
	return g.world
}

// addMishaps adds what befalls the scheduler itself to some worlds: slow binds and preparations, late and repeated
// events, a fail-over, and volumes. It draws from numbers of its own, so that a world is the same without it.
func (g *generator) addMishaps(seed uint64) {
	own := &generator{Rand: rand.New(rand.NewPCG(seed, 1))}
	insert := func(after int, step Step) int { return g.insert(own, after, step) }
	if w, ok := among(own, g.workloads); ok && own.chance(20) {
		insert(0, SlowBinds{w.Name, pick(own, time.Millisecond, time.Second, 20*time.Second)})
	}
	if own.chance(20) {
		insert(0, Watches{pick(own, 0, 10*time.Millisecond, 500*time.Millisecond, 3*time.Second), own.chance(50)})
	}
	if own.chance(25) {
		insert(insert(0, StandBy{}), FailOver{})
	}
	if w, ok := among(own, g.workloads); ok && own.chance(20) {
		insert(0, SlowPreBinds{w.Name, pick(own, time.Millisecond, time.Second, 20*time.Second)})
	}
	if own.chance(25) {
		g.addVolume(own)
	}
}

// insert has a step happen some time after the first steps, and returns how many there are with it.
func (g *generator) insert(own *generator, after int, step Step) int {
	at := after + own.IntN(len(g.world.Steps)-after+1)
	g.world.Steps = slices.Insert(g.world.Steps, at, step)
	return at + 1
}

// addLateLeader has a leader of some worlds give its lease back while the events of the next one are late. It draws from
// numbers of its own, as addMishaps does.
func (g *generator) addLateLeader(seed uint64) {
	own := &generator{Rand: rand.New(rand.NewPCG(seed, 3))}
	if own.chance(15) {
		at := g.insert(own, 0, StandBy{})
		at = g.insert(own, at, Watches{Late: pick(own, 500*time.Millisecond, 3*time.Second)})
		g.insert(own, at, FailOver{pick(own, time.Millisecond, time.Second, 2*time.Second)})
	}
}

// addRest has some worlds run another workload in the end, in a zone that has room before others have. Then they lose
// that zone, or moves are made. It draws from numbers of its own, as addMishaps does.
func (g *generator) addRest(seed uint64) {
	own := &generator{Rand: rand.New(rand.NewPCG(seed, 4)), zones: []string{"a", "b", "c"}, made: g.made}
	own.Shuffle(len(own.zones), func(i, j int) { own.zones[i], own.zones[j] = own.zones[j], own.zones[i] })
	run := own.drawWorkload().(Run)
	run.Workload.Replicas, run.Workload.CPU, run.Workload.Runs, run.Workload.Pool = 3+own.IntN(4), 1, 0, ""
	end := Step(LoseCertified{own.zones[0], own.chance(50)})
	switch own.IntN(5) {
	case 0, 1:
	case 2, 3:
		end = Rebalance{}
		run.Workload.Pool = "gpu" // others do not take its room
		if run.Workload.gang() {  // which nobody moves
			run.Workload.Kind = Deployment
		}
	default:
		return
	}
	own.workloads = []Workload{run.Workload}
	for i, zone := range own.zones {
		node := own.drawNode(zone, 8).(Add)
		node.Node.Pool = run.Workload.Pool
		own.step(node)
		if i == 0 {
			own.step(run)
			own.step(Wait{time.Minute})
		}
	}
	own.step(own.drawPolicy())
	own.step(Wait{quiet})
	own.step(end)
	g.world.AtRest = own.world.Steps
}

// addDevices has pods of some worlds ask for devices, which some of their nodes have. It draws from numbers of its own,
// as addMishaps does.
func (g *generator) addDevices(seed uint64) {
	own := &generator{Rand: rand.New(rand.NewPCG(seed, 2))}
	if !own.chance(20) {
		return
	}
	var gangs, all []string
	for i, step := range g.world.Steps {
		switch s := step.(type) {
		case Add:
			if own.chance(70) {
				s.Node.Devices = 1 + own.IntN(2)
			}
			g.world.Steps[i] = s
		case Run:
			all = append(all, s.Workload.Name)
			if s.Workload.gang() {
				gangs = append(gangs, s.Workload.Name)
			}
		}
	}
	for _, from := range [][]string{gangs, all, all} {
		if name, some := among(own, from); some {
			g.askForDevices(own, name)
		}
	}
}

// askForDevices has the pods of a workload ask for a device each. Of some the claim is deleted, or the preparation
// fails.
func (g *generator) askForDevices(own *generator, name string) {
	for i, step := range g.world.Steps {
		run, starts := step.(Run)
		if !starts || run.Workload.Name != name {
			continue
		}
		run.Workload.Device = pick(own, OwnClaim, OwnClaim, OwnClaim, TemplateClaim, TemplateClaim, TemplateClaim, SharedClaim, AbsentClaim)
		g.world.Steps[i] = run
		if own.chance(40) {
			at := i + 1 + own.IntN(len(g.world.Steps)-i)
			g.world.Steps = slices.Insert(g.world.Steps, at, Step(DropClaim{name, own.IntN(6)}))
		}
		if own.chance(30) { // others of its gang have their devices by then
			fails := FailPreBind{name, own.IntN(run.Workload.Replicas), pick(own, time.Second, time.Minute)}
			g.world.Steps = slices.Insert(g.world.Steps, i, Step(fails))
		}
		return
	}
}

// addVolume gives the pods of a workload a claim.
func (g *generator) addVolume(own *generator) {
	w, haveWorkload := among(own, g.workloads)
	n, haveNode := among(own, g.nodes)
	if !haveWorkload || !haveNode {
		return
	}
	for i, step := range g.world.Steps {
		if run, starts := step.(Run); starts && run.Workload.Name == w.Name {
			run.Workload.Volume = pick(own, n.Zone, n.Zone, n.Name, Unprovisioned)
			g.world.Steps[i] = run
		}
	}
}

// generator draws a world. What it knows of the cluster is only what its own steps have asked for.
type generator struct {
	*rand.Rand
	world     World
	zones     []string
	nodes     []Node
	workloads []Workload
	reserved  []Reservation
	policies  []Policy
	made      int // numbers names
}

func (g *generator) step(s Step) {
	if s != nil {
		g.world.Steps = append(g.world.Steps, s)
	}
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// among returns one of a list, if it has any.
func among[T any](g *generator, list []T) (one T, ok bool) {
	if len(list) == 0 {
		return one, false
	}
	return list[g.IntN(len(list))], true
}

func (g *generator) name(prefix string) string {
	g.made++
	return fmt.Sprintf("%s%d", prefix, g.made)
}

func (g *generator) drawPause() time.Duration {
	return pick(g, 0, time.Millisecond, 50*time.Millisecond, time.Second, time.Second, 3*time.Second, 10*time.Second, 30*time.Second, 2*time.Minute, 7*time.Minute)
}

// drawCluster begins with nodes, and with a few objects in any order.
func (g *generator) drawCluster() {
	g.zones = g.zones[:1+g.IntN(3)]
	size := pick(g, 2, 4, 4, 6)
	for _, zone := range g.zones {
		for range 1 + g.IntN(2) {
			g.step(g.drawNode(zone, size))
		}
	}
	if g.chance(40) {
		g.step(g.drawWorkload())
		g.step(g.drawReservation())
		g.step(Wait{g.drawPause()})
	}
	if g.chance(65) {
		g.step(g.drawFiller())
	}
	for range 1 + g.IntN(4) {
		g.step(g.drawWorkload())
		if g.chance(40) {
			g.step(g.drawReservation())
		}
		if g.chance(20) {
			g.step(g.drawPolicy())
		}
		if g.chance(50) {
			g.step(Wait{g.drawPause()})
		}
	}
}

// drawFiller draws a workload that wants about all room that there is: few promises matter in a cluster with room for
// everything.
func (g *generator) drawFiller() Step {
	room := -g.IntN(3)
	for _, n := range g.nodes {
		if n.Pool == "" {
			room += n.CPU
		}
	}
	w := Workload{Name: g.name("fill"), Kind: Deployment, Replicas: max(room, 1), CPU: 1, Priority: pick[int32](g, 0, 0, -10)}
	if g.chance(20) {
		w.Kind, w.Runs = Job, pick(g, time.Minute, 10*time.Minute)
	}
	g.workloads = append(g.workloads, w)
	return Run{w}
}

// drawPlot draws a few steps that have to do with each other: the parts of a combination that single steps would hardly
// ever make.
func (g *generator) drawPlot() {
	kind := Gang
	if g.world.Native && g.chance(70) {
		kind = NativeGang
	}
	gang := Workload{Name: g.name("gang"), Kind: kind, Replicas: 2 + g.IntN(4), CPU: pick(g, 1, 1, 2), Priority: pick[int32](g, 0, 100)}
	g.workloads = append(g.workloads, gang)
	other, _ := among(g, g.workloads)
	switch g.IntN(5) {
	case 0: // a gang that owns slots, and fewer than it has members
		g.step(Reserve{Reservation{
			Name: g.name("r"), App: gang.Name, Slots: 1 + g.IntN(gang.Replicas), CPU: gang.CPU, Priority: gang.Priority, Guarantee: g.chance(50), Required: g.chance(30),
		}})
		g.step(Wait{g.drawPause()})
		g.step(Run{gang})
	case 1: // a gang that waits for long, and owners that come then
		owner := Workload{Name: g.name("web"), Kind: Deployment, Replicas: 1 + g.IntN(2), CPU: 1}
		g.step(Reserve{Reservation{Name: g.name("r"), App: owner.Name, Slots: owner.Replicas, CPU: 1, Guarantee: g.chance(50), Required: g.chance(30)}})
		g.workloads = append(g.workloads, owner)
		g.step(Run{gang})
		g.step(Wait{pick(g, 6*time.Minute, 8*time.Minute)})
		g.step(Run{owner})
	case 2: // a victim that does not go
		g.step(Stick{other.Name, g.IntN(6)})
		gang.Priority = 100
		g.step(Run{gang})
	case 3: // a member that is never prepared
		g.step(FailPreBind{gang.Name, g.IntN(gang.Replicas), pick(g, time.Second, 10*time.Minute)})
		g.step(Run{gang})
	case 4: // a rollout, and pods that wait for the room of its old replicas
		owner := Workload{Name: g.name("web"), Kind: Deployment, Replicas: 2 + g.IntN(3), CPU: 1}
		g.workloads = append(g.workloads, owner)
		g.step(Run{owner})
		g.step(Reserve{Reservation{Name: g.name("r"), App: owner.Name, Slots: 1 + g.IntN(2), CPU: 1, Guarantee: g.chance(30)}})
		g.step(Wait{g.drawPause()})
		g.step(RollOut{owner.Name})
		for range 1 + g.IntN(5) {
			small := Workload{Name: g.name("small"), Kind: kind, Replicas: 1, CPU: 1}
			g.workloads = append(g.workloads, small)
			g.step(Run{small})
			g.step(Wait{pick(g, 0, time.Second, 3*time.Second, 10*time.Second)})
		}
	}
}

func (g *generator) drawNode(zone string, size int) Step {
	n := Node{Name: g.name(zone), Zone: zone, CPU: size}
	if g.chance(25) {
		n.CPU = 1 + g.IntN(8)
	}
	if g.chance(10) {
		n.Pool = "gpu"
	}
	g.nodes = append(g.nodes, n)
	return Add{n}
}

func (g *generator) drawWorkload() Step {
	kinds := []Kind{Deployment, Deployment, Deployment, StatefulSet, Job, Gang, Gang, Gang}
	if g.world.Native {
		kinds = append(kinds, NativeGang, NativeGang, NativeGang, NativeGang)
	}
	w := Workload{Kind: pick(g, kinds...), Replicas: 1 + g.IntN(6), CPU: pick(g, 1, 1, 1, 2, 3)}
	w.Name = g.name(map[Kind]string{Deployment: "web", StatefulSet: "db", Job: "job", Gang: "gang", NativeGang: "native"}[w.Kind])
	if g.chance(25) {
		w.Priority = pick[int32](g, 100, 100, 1000, -10)
	}
	if w.Priority > 0 && g.chance(15) {
		w.NeverPreempts = true
	}
	if g.chance(10) {
		w.Pool = "gpu"
	}
	if g.chance(25) {
		w.Spread = pick(g, OverZones, OverZones, OverZonesIfFree, OnePerNode)
	}
	switch w.Kind {
	case Job:
		w.Runs = pick(g, 10*time.Second, time.Minute, 10*time.Minute)
	case Gang, NativeGang:
		if g.chance(30) {
			w.Runs = pick(g, 30*time.Second, 5*time.Minute)
		}
		if g.chance(20) {
			w.MinMember = 1 + g.IntN(w.Replicas)
		}
		if g.chance(30) {
			w.Packing = pick(g, RequiredZone, PreferredZone)
		}
		if w.Kind == Gang {
			w.MinResources = g.chance(15)
			if g.chance(20) {
				w.Timeout = pick(g, 10*time.Second, time.Minute, 5*time.Minute)
			}
		}
	}
	if other, ok := among(g, g.workloads); ok && g.chance(15) {
		w.App = other.Name // two workloads of one app
	}
	g.workloads = append(g.workloads, w)
	return Run{w}
}

func (g *generator) drawReservation() Step {
	w, ok := among(g, g.workloads)
	if !ok {
		return nil
	}
	r := Reservation{
		App: w.Name, Slots: 1 + g.IntN(4), CPU: w.CPU, Guarantee: g.chance(35), Required: g.chance(25),
		Priority: max(w.Priority, 0),
	}
	if w.App != "" {
		r.App = w.App
	}
	if known, exists := among(g, g.reserved); exists && g.chance(30) {
		r.Name, r.App = known.Name, known.App // an edit
	} else {
		r.Name = g.name("r")
	}
	if g.chance(50) {
		for _, zone := range g.zones {
			if g.chance(70) {
				r.Zones = append(r.Zones, zone)
			}
		}
	}
	if g.chance(15) {
		r.CPU = 1 + g.IntN(3)
	}
	if g.chance(15) {
		r.SlotsPerNode = 1 + g.IntN(2)
	}
	g.reserved = append(g.reserved, r)
	return Reserve{r}
}

func (g *generator) drawPolicy() Step {
	w, ok := among(g, g.workloads)
	if !ok {
		return nil
	}
	p := Policy{Name: g.name("p"), App: w.Name, MaxSkew: 1 + g.IntN(2), Soft: g.chance(25), QuorumSafe: g.chance(15)}
	if w.App != "" {
		p.App = w.App
	}
	if known, exists := among(g, g.policies); exists && g.chance(30) {
		p.Name, p.App = known.Name, known.App
	}
	if g.chance(20) {
		p.MinZones = 1 + g.IntN(3)
	}
	if g.chance(20) {
		p.MaxPerZone = pick(g, "1", "3", "50%", "40%")
	}
	if g.chance(30) {
		p.Weights = map[string]int{}
		for _, zone := range g.zones {
			p.Weights[zone] = 1 + g.IntN(3)
		}
	}
	p.Gangs = (w.Kind == Gang || w.Kind == NativeGang) && g.chance(30)
	g.policies = append(g.policies, p)
	return Apply{p}
}

// drawChange draws something that happens. It may name what is gone by then.
func (g *generator) drawChange() Step {
	w, hasWorkload := among(g, g.workloads)
	n, hasNode := among(g, g.nodes)
	zone := pick(g, g.zones...)
	switch roll := g.IntN(100); {
	case roll < 22:
		return g.drawWorkload()
	case roll < 30:
		return g.drawReservation()
	case roll < 34:
		return g.drawPolicy()
	case roll < 36:
		if r, ok := among(g, g.reserved); ok {
			return Unreserve{r.Name}
		}
	case roll < 37:
		if p, ok := among(g, g.policies); ok {
			return Revoke{p.Name}
		}
	case roll < 46 && hasWorkload:
		return Scale{w.Name, g.IntN(8)}
	case roll < 52 && hasWorkload:
		return RollOut{w.Name}
	case roll < 56 && hasWorkload:
		return Stop{w.Name}
	case roll < 65 && hasWorkload:
		return Evict{w.Name, g.IntN(6)}
	case roll < 68 && hasWorkload:
		return Stick{w.Name, g.IntN(6)}
	case roll < 71 && hasWorkload:
		return RefuseBinds{w.Name, g.IntN(4)}
	case roll < 73 && hasWorkload:
		return FailPreBind{w.Name, g.IntN(6), pick(g, 0, time.Second, 10*time.Minute)}
	case roll < 78:
		return g.drawNode(zone, pick(g, 2, 4, 8))
	case roll < 81 && hasNode:
		return Remove{n.Name}
	case roll < 84 && hasNode:
		return Cordon{n.Name, g.chance(50)}
	case roll < 87 && hasNode:
		return Drain{n.Name}
	case roll < 88 && hasNode:
		return Relabel{n.Name, zone}
	case roll < 90 && hasNode:
		return Lose{Node: n.Name}
	case roll < 92 && hasNode:
		return Recover{Node: n.Name}
	case roll < 94:
		return Lose{Zone: zone}
	case roll < 97:
		return Recover{Zone: zone}
	}
	return Restart{}
}
