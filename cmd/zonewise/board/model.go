package board

import "time"

// Page is what the page shows. Strings are text, not HTML.
type Page struct {
	// Cluster names the cluster; At is the time of the page.
	Cluster string
	At      time.Time
	// Banner is a line at the top, or empty.
	Banner string
	// Summary is the page in one sentence.
	Summary string
	Tiles   []Tile
	Notes   []string

	Zones ZonesView
	// Columns are the zones that have a column in tables.
	Columns      []string
	Policies     Policies
	Workloads    Workloads
	Reservations Reservations
	Gangs        Gangs
	Waiting      Waiting
	Report       *Report
}

// Tile is a number that stands out.
type Tile struct {
	Label, Value, Detail string
	Tone                 Tone
}

// Tone is how good or bad something is. It is never shown by colour alone.
type Tone string

// The tones.
const (
	Good  Tone = "good"
	Mild  Tone = "mild"
	Bad   Tone = "bad"
	Plain Tone = "plain"
)

// Badge is a state in a word.
type Badge struct {
	Text string
	Tone Tone
}

// Mark is a sign for the tone, for readers who do not see colours.
func (b Badge) Mark() string {
	return map[Tone]string{Good: "✓", Mild: "!", Bad: "✕"}[b.Tone]
}

// Bar is a share with its figures.
type Bar struct {
	Label, Text string
	// Percent is 0 to 100.
	Percent int64
	Tone    Tone
}

// ZonesView shows the zones as columns.
type ZonesView struct {
	Zones []Zone
	// Hidden is how many zones are left out.
	Hidden int
	// Cards is true if nodes are shown one by one with their pods. Otherwise each cell of a grid is PerCell nodes.
	Cards   bool
	PerCell int
}

// Zone is one column.
type Zone struct {
	Name  string
	State Badge
	Nodes int
	Facts []string
	Bars  []Bar
	Cells []Cell
}

// Cell is one node, or several neighbouring ones.
type Cell struct {
	// Key is the same for the same nodes in every page.
	Key  string
	Name string
	// Level is 0 to 10: how full the nodes are, by their scarcest resource.
	Level int
	State Badge
	// Label says all of this in words.
	Label string
	// Nodes is how many nodes the cell stands for, Share the text of Level.
	Nodes int
	Share string
	// Pods has the pods by workload, for cards only.
	Pods []PodsOf
	// More is how many workloads are left out of Pods.
	More int
}

// PodsOf counts the pods of a workload on a node.
type PodsOf struct {
	Workload string
	Count    int
}

// Table is what the lists have in common.
type Table struct {
	// All is how many there are, Hidden how many are left out.
	All, Hidden int
}

// Policies are the ZoneSpreadPolicies.
type Policies struct {
	Table
	Rows []Policy
}

// Policy is one ZoneSpreadPolicy.
type Policy struct {
	Name    string
	State   Badge
	Pods    string
	Skew    Badge
	Cells   []Share // one for each of Page.Columns
	Others  string  // zones that have no column
	Message string
}

// Share is what a policy or a workload has in a zone.
type Share struct {
	// None is true if the zone does not count.
	None bool
	Text string
	// Cap is the limit in words, empty when there is none; State of the zone when it is not available.
	Cap, State string
	Percent    int64
	Tone       Tone
}

// Workloads are those with topologySpreadConstraints over zones.
type Workloads struct {
	Table
	Rows []Workload
	// BySkew says how many have which skew.
	BySkew string
}

// Workload is one of them, with one constraint.
type Workload struct {
	Name  string
	Skew  Badge
	Hard  bool
	Cells []Share
}

// Reservations are the ZoneReservations.
type Reservations struct {
	Table
	Rows []Reservation
}

// Reservation is one ZoneReservation.
type Reservation struct {
	Name, Mode string
	State      Badge
	// Used, Held and Desired count slots, or places for pods if amounts are held.
	Used, Held, Desired int64
	Cells               []Share
	Message             string
}

// Gangs are the PodGroups.
type Gangs struct {
	Table
	Whole int
	// Waiting have a reason, Rows are the others.
	Waiting []Gang
	Rows    []Gang
}

// Gang is one PodGroup.
type Gang struct {
	Name                      string
	State                     Badge
	Bound, MinMember, Members int
	Zones                     string
	Percent                   int64
	Why                       Why
}

// Waiting are the pods without a node that are in no gang, by workload.
type Waiting struct {
	Table
	Pods int
	Rows []WaitingOf
}

// WaitingOf has the waiting pods of a workload.
type WaitingOf struct {
	Workload, Oldest string
	Count            int
	Why              Why
}

// Why says why something waits.
type Why struct {
	// Needs is what a gang needs in one sentence.
	Needs string
	// Said is what the scheduler said last.
	Said string
	// Next is what would let it go.
	Next []string
	// Zones say what each zone offers it.
	Zones []WhyZone
	// Command is a command that tells more, if the page does not have the answer.
	Command string
}

// WhyZone is a zone and the obstacles there.
type WhyZone struct {
	Zone, Fit string
	Obstacles []string
}

// Report is a list of checks to show on the page, as the demo has.
type Report struct {
	Title  string
	Checks []Check
	Facts  []Fact
}

// Check is something that must be true.
type Check struct {
	Name, Scope string
	// Violations is empty if it is.
	Violations []string
}

// OK reports whether it is true.
func (c Check) OK() bool { return len(c.Violations) == 0 }

// Fact is a line of figures.
type Fact struct{ Name, Value string }
