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
	// Survivals are the ZoneSurvivals, SurvivalsHidden how many are left out.
	Survivals       []Survival
	SurvivalsHidden int
	// Columns are the zones that have a column in tables.
	Columns []string
	// Gangs has those that are whole as rows, Waiting the pods that are in no gang, by workload.
	Gangs, Waiting, Policies, Workloads, Rebalances, Reservations List
	Report                                                        *CheckReport
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

// Badge is a state in a word, or a mere figure if it has no tone.
type Badge struct {
	Text string
	Tone Tone
}

// Share is a part of a whole with its figures: a resource of a zone, or what a policy, workload or reservation has in a
// zone.
type Share struct {
	Label, Text string
	// None is true if the zone does not count.
	None bool
	// Cap is the limit in words, empty when there is none; State of the zone when it is not available.
	Cap, State string
	// Percent is 0 to 100.
	Percent int64
	Tone    Tone
}

// ZonesView shows the zones as columns.
type ZonesView struct {
	Zones []ZoneColumn
	// Hidden is how many zones are left out.
	Hidden int
	// Cards is true if nodes are shown one by one with their pods. Otherwise each cell of a grid is PerCell nodes.
	Cards   bool
	PerCell int
}

// ZoneColumn is one column.
type ZoneColumn struct {
	Name  string
	State Badge
	Facts []string
	Bars  []Share
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
	// Pods are those of a node that is shown as a card, More how many workloads are left out.
	Pods []PodsOf
	More int
}

// PodsOf is the pods of a workload.
type PodsOf struct {
	Workload string
	Count    int
}

// Survival is a ZoneSurvival.
type Survival struct {
	Name             string
	State            Badge
	Figures, Message string
	// Missing is the room that there is not, in words.
	Missing []string
	Losses  []Loss
	// Hidden is how many losses are left out.
	Hidden int
}

// Loss is what a ZoneSurvival says about the loss of a zone.
type Loss struct {
	Zone  string
	State Badge
	Facts []string
	// Margin has, for each resource, the zone that would have least of it free.
	Margin []Share
	// Witness is the first pod that would wait, and Said what the scheduler says about it.
	Witness, Said string
}

// List is a section with a table, with cards, or with both.
type List struct {
	// Empty is the text without entries, Lead the one before them.
	Empty, Lead string
	Cards       []Card
	// Caption and Heads are those of the table.
	Caption string
	Heads   []string
	Rows    []Row
	// All is how many entries there are, Hidden how many are left out. The first are Order, and Elsewhere has them all.
	All, Hidden      int
	Order, Elsewhere string
}

// Row is a row of a table.
type Row struct {
	// Key identifies the row on every page. It is empty if there may be several.
	Key, Name string
	Figures   []Badge
	// Cells are for each of Page.Columns, Others is about zones that have no column.
	Cells           []Share
	Others, Message string
}

// Card is a gang or a workload that waits, and why.
type Card struct {
	Name    string
	State   Badge
	Figures string
	// Needs is what a gang needs in one sentence.
	Needs string
	// Said is what the scheduler said last.
	Said string
	// Command is the command that tells more.
	Command string
}

// CheckReport is a list of checks to show on the page, as the demo has.
type CheckReport struct {
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
