package board

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/test/clitest"
)

func pageOf(t *testing.T, c *clitest.Cluster, opts Options) *Page {
	t.Helper()
	return Build(census.Take(c.Snapshot), opts)
}

func htmlOf(t *testing.T, p *Page) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, p.HTML(&out))
	return out.String()
}

func TestStory(t *testing.T) {
	p := pageOf(t, clitest.Story(), Options{Cluster: "prod"})
	require.Equal(t, "3 zones (all with ready nodes), 6 nodes (all ready), 12 pods (5 waiting), 1 policy (1 not satisfied), "+
		"6 unused slots (of 6 wanted), 0 ZoneSurvivals (none), 2 gangs (1 waiting).", p.Summary)
	require.Equal(t, []string{"a", "b", "c"}, p.Columns)
	require.True(t, p.Zones.Cards)

	a := p.Zones.Zones[0]
	require.Equal(t, serving, a.State)
	require.Equal(t, []string{"2 nodes, all ready", "4 pods"}, a.Facts)
	require.Equal(t, []Share{{Label: "CPU", Text: "26%", Percent: 26, Tone: Good}, {Label: "Memory", Text: "19%", Percent: 19, Tone: Good}}, a.Bars)
	require.Equal(t, []PodsOf{{"shop/db", 1}, {"shop/web", 1}}, a.Cells[0].Pods)
	require.Contains(t, p.Zones.Zones[2].Facts, "6 slots held and unused")

	web := p.Policies.Rows[0]
	require.Equal(t, "shop/web", web.Name)
	require.Equal(t, []Badge{{"Infeasible", Bad}, {Text: "6 of 7"}, {Text: "0 of 1"}}, web.Figures)
	require.Equal(t, Share{Text: "2/2", Cap: "cap 2, reached", Percent: 100, Tone: Good}, web.Cells[1])
	require.Contains(t, web.Message, "add up to 6 pods, fewer than the 7 replicas")
	require.Contains(t, web.Message, "; ScaleDownOrdered is False, OtherManager: ")

	db := p.Workloads.Rows[0]
	require.Equal(t, "Deployment shop/db", db.Name)
	require.Equal(t, []Badge{{Text: "0 of 1"}, {Text: "must"}}, db.Figures)
	require.Equal(t, "1 with skew 0.", p.Workloads.Lead)

	held := p.Reservations.Rows[0]
	require.Equal(t, "web-failover", held.Name)
	require.Equal(t, []Badge{{"OK", Good}, {Text: "Headroom"}, {Text: "0"}, {Text: "6"}, {Text: "6"}}, held.Figures)

	require.Equal(t, 2, p.Gangs.All)
	require.Equal(t, "1 of 2 whole.", p.Gangs.Lead)
	require.Equal(t, []Badge{{"Whole", Good}, {Text: "2"}, {Text: "2"}, {Text: "b 2"}}, p.Gangs.Rows[0].Figures)
	train := p.Gangs.Cards[0]
	require.Equal(t, "shop/train", train.Name)
	require.Equal(t, "4 more to be bound at once. ", train.Needs)
	require.Equal(t, "zonewise explain podgroup/train -n shop", train.Command)

	require.Equal(t, "1 outside of gangs, by workload.", p.Waiting.Lead)
	pod := p.Waiting.Cards[0]
	require.Equal(t, "Deployment shop/web", pod.Name)
	require.Equal(t, "1 waiting, the oldest for 5m", pod.Figures)
	require.Equal(t, "0/6 nodes are available: policy shop/web: zone a holds 2 of 7", pod.Said)
	require.Regexp(t, "^zonewise explain pod/web-.* -n shop$", pod.Command)
}

// TestRebalances: a row for each ZoneRebalance, the worst first.
func TestRebalances(t *testing.T) {
	c := clitest.Story()
	require.Contains(t, htmlOf(t, pageOf(t, c, Options{})), "No ZoneRebalance")
	condition := func(kind string, status metav1.ConditionStatus, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Message: message}
	}
	rebalance := func(name string, balanced metav1.ConditionStatus, message string) *v1alpha1.ZoneRebalance {
		r := &v1alpha1.ZoneRebalance{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ZoneRebalanceSpec{Mode: v1alpha1.RebalanceEvict}}
		r.Status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionReady, metav1.ConditionTrue, ""), condition(v1alpha1.ConditionBalanced, balanced, message)}
		return r
	}
	drifted := rebalance("services", metav1.ConditionFalse, "4 pods too many")
	drifted.Status.Excess, drifted.Status.Planned = 4, 1
	drifted.Status.Moves = []v1alpha1.RebalanceMove{{State: v1alpha1.MoveEvicted}, {State: v1alpha1.MoveMoved}}
	drifted.Status.Plan = []v1alpha1.PlannedMove{{MovedPod: v1alpha1.MovedPod{Namespace: "shop", Name: "web-1", From: "a", To: []string{"b", "c"}}, Batch: 1, Rules: "topologySpreadConstraint"}}
	c.Add(rebalance("batch", metav1.ConditionTrue, ""), drifted)
	p := pageOf(t, c, Options{})
	require.Equal(t, []string{"services", "shop/web-1", "batch"}, []string{p.Rebalances.Rows[0].Name, p.Rebalances.Rows[1].Name, p.Rebalances.Rows[2].Name})
	require.Equal(t, "batch 1: from a to b or c, topologySpreadConstraint", p.Rebalances.Rows[1].Message)
	require.Equal(t, []Badge{{"Drifted", Mild}, {Text: "Evict"}, {Text: "4"}, {Text: "1"}, {Text: "1"}}, p.Rebalances.Rows[0].Figures)
	require.Contains(t, htmlOf(t, p), "4 pods too many")
}

// TestLosses: a card for each loss, the worst first, with the least margin and the first witness.
func TestLosses(t *testing.T) {
	c := clitest.Story()
	c.Add(certificate("services", 0))
	breaks := certificate("all", 2)
	breaks.Status.Missing = []v1alpha1.SurvivalMissing{{Zone: "b", Pods: 2, Requests: clitest.Requests("1", "2Gi")}, {Pods: 1, Requests: clitest.Requests("64", "2Gi")}}
	c.Add(breaks, &v1alpha1.ZoneSurvival{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
	p := pageOf(t, c, Options{})
	require.Contains(t, p.Summary, "3 ZoneSurvivals (2 False or Unknown)")
	require.Equal(t, []string{"all", "new", "services"}, []string{p.Survivals[0].Name, p.Survivals[1].Name, p.Survivals[2].Name})

	all := p.Survivals[0]
	require.Equal(t, Badge{"Breaks", Bad}, all.State)
	require.Equal(t, "6 pods protected, computed 90s ago; held: 3 cpu, 6Gi memory, 3 pods missing", all.Figures)
	require.Equal(t, "without zone b", all.Message)
	require.Equal(t, []string{"2 pods of 1 cpu, 2Gi memory in b", "1 pod of 64 cpu, 2Gi memory in no zone"}, all.Missing)
	require.Equal(t, Loss{
		Zone: "b", State: Badge{"2 would wait", Bad}, Facts: []string{"2 nodes", "3 pods displaced"},
		Margin: []Share{
			{Label: "cpu", Text: "25% free in a", Percent: 25, Tone: Good}, {Label: "memory", Text: "10% free in c", Percent: 10, Tone: Good},
		},
		Witness: "shop/web-1-1", Said: "0/4 nodes are available",
	}, all.Losses[0])
	require.Equal(t, Loss{Zone: "a", State: Badge{"all run again", Good}, Facts: []string{"2 nodes", "2 pods displaced"}}, all.Losses[1])

	require.Equal(t, Survival{Name: "new", State: Badge{"Unknown", Mild}, Message: "no controller has answered yet"}, p.Survivals[1])
	require.Equal(t, Badge{"Survives", Good}, p.Survivals[2].State)
	require.Equal(t, Badge{"all run again", Good}, p.Survivals[2].Losses[1].State)
	html := htmlOf(t, p)
	require.Contains(t, html, "1 pod of 64 cpu, 2Gi memory in no zone")
	require.Contains(t, html, "0/4 nodes are available")
}

// certificate says that so many pods would wait after the loss of zone b.
func certificate(name string, waiting int64) *v1alpha1.ZoneSurvival {
	answer := metav1.Condition{Type: v1alpha1.ConditionSurvives, Status: metav1.ConditionTrue}
	loss := v1alpha1.SurvivalLoss{Zone: "b", Nodes: 2, Displaced: 3, Waiting: waiting, Margin: []v1alpha1.SurvivalMargin{
		{Zone: "a", Free: clitest.Requests("2", "16Gi"), Allocatable: clitest.Requests("8", "32Gi")},
		{Zone: "c", Free: clitest.Requests("4", "3200Mi"), Allocatable: clitest.Requests("8", "32000Mi")},
	}}
	if waiting > 0 {
		answer.Status, answer.Message = metav1.ConditionFalse, "without zone b"
		loss.Witnesses = []v1alpha1.SurvivalWitness{{Namespace: "shop", Name: "web-1-1", Why: "0/4 nodes are available"}, {Namespace: "shop", Name: "web-1-2"}}
	}
	return &v1alpha1.ZoneSurvival{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.ZoneSurvivalStatus{
		ComputedAt: metav1.NewTime(clitest.Now.Add(-90 * time.Second)), Pods: 6, Held: clitest.Requests("3", "6Gi"),
		Losses:     []v1alpha1.SurvivalLoss{{Zone: "a", Nodes: 2, Displaced: 2}, loss},
		Conditions: []metav1.Condition{answer, {Type: v1alpha1.ConditionHeld, Status: metav1.ConditionTrue}},
	}}
}

func TestNamespaceRestrictsAllButZonesAndReservations(t *testing.T) {
	p := pageOf(t, clitest.Story(), Options{Namespace: "other"})
	require.Zero(t, p.Policies.All+p.Workloads.All+p.Gangs.All+p.Waiting.All)
	require.Equal(t, 1, p.Reservations.All)
	require.Len(t, p.Zones.Zones, 3)
}

func TestStatesOfZonesAndNodes(t *testing.T) {
	c := clitest.New()
	for _, zone := range []string{"a", "b", "c"} {
		for i := range 2 {
			c.Node(fmt.Sprintf("%s%d", zone, i), zone, "8", "32Gi")
		}
	}
	c.Node("n", "", "8", "32Gi")
	for _, node := range snapshot.List[*corev1.Node](c.Snapshot) {
		switch name := node.Name; {
		case strings.HasPrefix(name, "b"):
			node.Status.Conditions[0].Status = corev1.ConditionUnknown
		case name == "c1":
			node.Spec.Unschedulable = true
		}
	}
	p := pageOf(t, c, Options{})
	var got []string
	for _, z := range p.Zones.Zones {
		got = append(got, z.Name+" "+z.State.Text+" "+string(z.State.Tone))
	}
	require.Equal(t, []string{"(no zone) serving good", "a serving good", "b not ready bad", "c partly mild"}, got)
	require.Equal(t, cordoned, p.Zones.Zones[3].Cells[1].State)
	require.Equal(t, "c1: cordoned, 0 pods, 0% of CPU", p.Zones.Zones[3].Cells[1].Label)
	require.Equal(t, "1 without a ready node", p.Tiles[0].Detail)
	require.Equal(t, Bad, p.Tiles[0].Tone)
}

func TestWhatCannotBeSeenIsSaid(t *testing.T) {
	c := clitest.New()
	c.Missing = []snapshot.Missing{
		{Resource: "podgroups.scheduling.x-k8s.io", Reason: snapshot.NotInstalled},
		{Resource: "zonespreadpolicies.zonewise.dev", Reason: snapshot.Forbidden},
	}
	p := pageOf(t, c, Options{})
	require.Equal(t, []string{
		"podgroups.scheduling.x-k8s.io are not installed in this cluster",
		"you may not list zonespreadpolicies.zonewise.dev, they are left out",
		"the cluster has no nodes",
	}, p.Notes)
	require.Contains(t, htmlOf(t, p), "you may not list zonespreadpolicies.zonewise.dev")
}

// TestLinksAtTheTop: they lead to the sections that the page has, in their order.
func TestLinksAtTheTop(t *testing.T) {
	for _, report := range []*CheckReport{nil, {Title: "The demo"}} {
		p := pageOf(t, clitest.Story(), Options{})
		p.Report = report
		html := htmlOf(t, p)
		var links, headings []string
		for _, found := range regexp.MustCompile(`<li><a href="#(\w+)">`).FindAllStringSubmatch(html, -1) {
			links = append(links, found[1])
		}
		for _, found := range regexp.MustCompile(`<h2 id="(\w+)" tabindex="-1">`).FindAllStringSubmatch(html, -1) {
			headings = append(headings, found[1])
		}
		require.Equal(t, headings, links)
		require.Equal(t, report != nil, slices.Contains(links, "report"))
	}
}

func TestHostileNamesAreText(t *testing.T) {
	const hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)>`
	c := clitest.Story()
	nodes := snapshot.List[*corev1.Node](c.Snapshot)
	nodes[0].Name = hostile
	nodes[1].Labels[corev1.LabelTopologyZone] = hostile
	for _, pod := range c.Pods() {
		if pod.Spec.NodeName == "" {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: hostile}}
		}
	}
	snapshot.List[*schedv1alpha1.PodGroup](c.Snapshot)[0].Name = hostile
	snapshot.List[*v1alpha1.ZoneSpreadPolicy](c.Snapshot)[0].Status.Conditions[1].Message = hostile
	snapshot.List[*v1alpha1.ZoneReservation](c.Snapshot)[0].Name = hostile
	breaks := certificate(hostile, 1)
	breaks.Status.Losses[1].Zone, breaks.Status.Losses[1].Witnesses[0].Why = hostile, hostile
	c.Add(breaks)
	for _, cards := range []bool{true, false} {
		p := pageOf(t, c, Options{Cluster: hostile})
		p.Zones.Cards = cards
		p.Banner = hostile
		p.Report = &CheckReport{Title: hostile, Checks: []Check{{Name: hostile, Violations: []string{hostile}}}, Facts: []Fact{{hostile, hostile}}}
		html := htmlOf(t, p)
		require.NotContains(t, html, "<script>alert")
		require.NotContains(t, html, "<img")
		require.Equal(t, 1, strings.Count(html, "<script>"))
		require.Contains(t, html, "&lt;script&gt;alert(1)&lt;/script&gt;")
	}
}

// large is a cluster of 6,000 nodes with more of everything than a page can show.
func large() *clitest.Cluster {
	c := clitest.New()
	long, words := strings.Repeat("long-", 12), strings.Repeat("why ", 5000) // one string for all, or they take most of a gigabyte
	for i := range 6000 {
		c.Node(fmt.Sprintf("%snode-%05d", long, i), fmt.Sprintf("%szone-%d", long, i%30), "64", "256Gi")
	}
	for i := range 1500 {
		name := fmt.Sprintf("%sservice-%d", long, i)
		pods := c.Deployment(name, 8, "1", "2Gi", func(t *corev1.PodTemplateSpec) {
			t.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{clitest.ZoneSpread(name, 1)}
		})
		for j := range 8 {
			pods(fmt.Sprintf("%snode-%05d", long, (i*8+j)%6000))
		}
		pods("").Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: words}}
	}
	for i := range 500 {
		c.Gang(fmt.Sprintf("%sgang-%d", long, i), 4)
		for j := range 4 {
			c.Pod(fmt.Sprintf("gang-%d-%d", i, j), "", clitest.Plain("100", "1Gi"), map[string]string{schedv1alpha1.PodGroupLabel: fmt.Sprintf("%sgang-%d", long, i)})
		}
		policy := c.Policy(fmt.Sprintf("%spolicy-%d", long, i), nil)
		reservation := &v1alpha1.ZoneReservation{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%sheld-%d", long, i)}}
		breaks := certificate(fmt.Sprintf("%ssurvival-%d", long, i), 1)
		breaks.Status.Losses = nil
		c.Add(breaks)
		for z := range 64 {
			zone := fmt.Sprintf("%szone-%d", long, z)
			policy.Status.Zones = append(policy.Status.Zones, v1alpha1.ZoneStatus{Name: zone, Pods: 1, Desired: 2, State: v1alpha1.ZoneAvailable})
			reservation.Status.Zones = append(reservation.Status.Zones, v1alpha1.ReservationZoneStatus{Name: zone})
			loss := certificate("", 1).Status.Losses[1]
			loss.Zone, loss.Witnesses[0].Why = zone, words
			breaks.Status.Losses = append(breaks.Status.Losses, loss)
		}
		c.Add(reservation)
	}
	return c
}

func TestPageOfALargeClusterIsBounded(t *testing.T) {
	c := large()
	start := time.Now()
	p := pageOf(t, c, Options{})
	html := htmlOf(t, p)
	t.Logf("%d bytes in %s", len(html), time.Since(start))
	require.Less(t, len(html), 2<<20)

	cells, nodes := 0, 0
	for _, z := range p.Zones.Zones {
		cells += len(z.Cells)
		for _, cell := range z.Cells {
			nodes += cell.Nodes
		}
	}
	require.LessOrEqual(t, cells, mostCells)
	require.Len(t, p.Zones.Zones, mostColumns)
	require.Equal(t, 30-mostColumns, p.Zones.Hidden)
	require.Equal(t, 200*mostColumns, nodes, "every node of a zone that is shown is in a cell")
	require.Equal(t, 2, p.Zones.PerCell)

	for _, tc := range []struct {
		list             List
		all, rows, cards int
	}{
		{p.Policies, 500, mostRows, 0},
		{p.Reservations, 500, mostRows, 0},
		{p.Gangs, 500, 0, mostWaiting},
		{p.Waiting, 1500, 0, mostWaiting},
		{p.Workloads, 1500, mostRows, 0},
	} {
		require.Len(t, tc.list.Rows, tc.rows)
		require.Len(t, tc.list.Cards, tc.cards)
		require.Equal(t, tc.all, tc.list.All)
		require.Equal(t, tc.all-tc.rows-tc.cards, tc.list.Hidden)
	}
	require.Len(t, p.Survivals, mostSurvivals)
	require.Equal(t, 500-mostSurvivals, p.SurvivalsHidden)
	require.Len(t, p.Survivals[0].Losses, mostColumns)
	require.Equal(t, 64-mostColumns, p.Survivals[0].Hidden)
	require.NotEmpty(t, p.Gangs.Cards[0].Needs)
	require.NotEmpty(t, p.Gangs.Cards[mostWaiting-1].Command)
	require.Contains(t, html, "480 of 500 are not shown")
}

func TestClip(t *testing.T) {
	longest := strings.Repeat("ä", mostText)
	require.Equal(t, longest, clipText(longest))
	require.Equal(t, strings.Repeat("ä", mostText-1)+"…", clipText(longest+"ö"))
	require.Equal(t, strings.Repeat("ä", mostText-1)+"…", clipText(longest+longest))
}

func TestNumbers(t *testing.T) {
	require.Equal(t, "15\u202f000", number(15000))
	require.Equal(t, "1\u202f234\u202f567", number(1234567))
	require.Equal(t, "999", number(999))
	require.Equal(t, "1 node", countOf(1, "node"))
	require.Equal(t, "2\u202f000 nodes", countOf(2000, "node"))
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "board.html")
	p := pageOf(t, clitest.Story(), Options{Cluster: "prod"})
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o644))
	require.NoError(t, p.WriteFile(path))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, htmlOf(t, p), string(data))
	require.NotContains(t, string(data), "data-events=", "a file waits for no updates")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing is left beside it")

	require.EqualError(t, p.WriteFile(filepath.Join(dir, "no", "board.html")), "write "+filepath.Join(dir, "no", "board.html")+": no such file or directory")
	require.EqualError(t, p.WriteFile(dir), dir+" is not a regular file")
}
