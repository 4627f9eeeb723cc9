package board

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/test/clitest"
	"zonewise.dev/test/internal/apiserver"
)

// TestLive is one test, since its parts look at one cluster.
func TestLive(t *testing.T) {
	zonewise := apiserver.Zonewise(t)
	c := start(t)
	few := c.User(t, "few", []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: []string{"list"}}})
	t.Run("what cannot be seen is said", func(t *testing.T) { testPartial(t, zonewise, few) })

	c.InstallAPIs(t)
	mover, gang := c.workload(t)
	board := serve(t, zonewise, "--kubeconfig", c.User(t, "viewer", apiserver.ViewerRules(t)))
	p := openTab(t, 1280, 900)
	p.open(board.url)
	p.until("#state", has("Live"), "the page is connected")
	require.Empty(t, p.text(".notes"), "the viewer may read and watch all there is")
	require.Equal(t, "envtest", p.text(".cluster"), "the context of the kubeconfig")
	p.until("[data-node=node-a] .pods", has("shop/mover"), "the pod is on node-a")
	require.Contains(t, p.text("#s-policies"), "zone a is 2 pods ahead of zone c")
	require.Contains(t, p.text("#s-policies"), "2 of 1")
	require.Contains(t, p.text("#s-reservations"), "failover")
	require.Contains(t, p.text("#s-survival [data-key=a]"), "1 would wait")
	require.Contains(t, p.text("#s-survival [data-key=a]"), "0/2 nodes are available")
	require.Contains(t, p.text("#s-survival [data-key=b]"), "25% free in c")

	t.Run("a gang waits, and why", func(t *testing.T) {
		p := p.with(t)
		p.until("#s-gangs [data-key='shop/train']", has("PodGroup shop/train: no plan for 2 members"), "the scheduler's own words")
		text := p.text("#s-gangs [data-key='shop/train']")
		require.Contains(t, text, "Waiting")
		require.Contains(t, text, "2 more to be bound at once.")
		require.Contains(t, text, "explain podgroup/train -n shop")
		p.screenshot("live")
	})
	t.Run("the page changes when a pod moves", func(t *testing.T) {
		p := p.with(t)
		// The focus and a screen reader's place stay through it.
		require.True(t, ask[bool](p, `document.querySelector("a[href='#policies']").focus(), window.kept = document.querySelector("[data-node=node-b]"), document.activeElement !== document.body`))
		require.NoError(t, c.Delete(t.Context(), mover))
		p.until("[data-node=node-a] .pods", lacks("shop/mover"), "the pod has left node-a")
		c.pod(t, "mover", "100m", "node-b", nil)
		p.until("[data-node=node-b] .pods", has("shop/mover"), "the pod is on node-b")
		require.True(t, ask[bool](p, `window.kept === document.querySelector("[data-node=node-b]") && document.activeElement.hash === "#policies"`))
	})
	t.Run("while it is paused it does not", func(t *testing.T) {
		p := p.with(t)
		ask[bool](p, `document.querySelector("#pause").click(), true`)
		require.Equal(t, "true", ask[string](p, `document.querySelector("#pause").getAttribute("aria-pressed")`))
		require.Equal(t, "Paused", p.text("#state"))
		other := openTab(t, 800, 600)
		other.open(board.url)
		c.pod(t, "late", "100m", "node-c", nil)
		other.until("[data-node=node-c] .pods", has("shop/late"), "another page shows it")
		require.NotContains(t, p.text("[data-node=node-c] .pods"), "shop/late")
		ask[bool](p, `document.querySelector("#pause").click(), true`)
		p.until("[data-node=node-c] .pods", has("shop/late"), "the page has caught up")
	})
	t.Run("a gang that is bound is whole, and a screen reader is told", func(t *testing.T) {
		p := p.with(t)
		for i, node := range []string{"node-b", "node-c"} {
			c.bind(t, gang[i], node)
		}
		p.until("#gangs ~ .lead", has("1 of 1 whole"), "the gang is whole")
		p.until("#live", has("1 gang (all whole)"), "the summary is read out")
	})
	t.Run("the end is said", func(t *testing.T) {
		p := p.with(t)
		p.requireNoFaults()
		board.interrupt(t)
		p.until("#state", has("what you see is old"), "the page knows")
	})
}

// testPartial looks at a cluster without the custom resources as somebody who may list nodes and pods alone.
func testPartial(t *testing.T, zonewise, kubeconfig string) {
	board := serve(t, zonewise, "--kubeconfig", kubeconfig)
	p := openTab(t, 1280, 900)
	p.open(board.url)
	p.until("#state", has("Live"), "the page is connected")
	p.until(".notes", has("you may list but not watch"), "the watches have been refused")
	notes := p.text(".notes")
	require.Contains(t, notes, "you may not list deployments.apps, they are left out")
	require.Regexp(t, "you may list but not watch (pods, nodes|nodes, pods):", notes)
	require.Contains(t, notes, "zonespreadpolicies.zonewise.dev")
	require.Contains(t, p.text("#s-zones"), "node-c")
	require.Contains(t, p.text("#s-policies"), "No ZoneSpreadPolicy.")

	// A page that has been led here under another name gets nothing.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, board.url, nil)
	require.NoError(t, err)
	request.Host = "rebound.example.com"
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusMisdirectedRequest, response.StatusCode)
}

// saved writes the pages of two clusters to files: one of a few nodes, one of many.
func saved(t *testing.T) (small, large string) {
	t.Helper()
	zonewise, dir := apiserver.Zonewise(t), t.TempDir()
	story := clitest.Story()
	story.Add(&v1alpha1.ZoneSurvival{ObjectMeta: metav1.ObjectMeta{Name: "services"}, Status: certificate(0)})
	for name, s := range map[string]*snapshot.Snapshot{"small": story.Snapshot, "large": busy()} {
		file := filepath.Join(dir, name+".json")
		require.NoError(t, snapshot.Save(file, s))
		page := filepath.Join(dir, name+".html")
		run := serveNothing(t, zonewise, "board", "--snapshot", file, "--output", page)
		require.Contains(t, run, page)
	}
	return "file://" + filepath.Join(dir, "small.html"), "file://" + filepath.Join(dir, "large.html")
}

// busy is a cluster with too many nodes for cards, in all states.
func busy() *snapshot.Snapshot {
	s := clitest.Large(1200, 30000)
	for i, node := range snapshot.List[*corev1.Node](s) {
		node.Spec.Unschedulable = i%3 == 2 && i%7 < 3
		if i%97 == 0 {
			node.Status.Conditions[0].Status = "False"
		}
	}
	c := &clitest.Cluster{Snapshot: s}
	c.Gang("train", 40)
	for i := range 40 {
		c.Pod(fmt.Sprintf("train-%d", i), "", clitest.Plain("30", "4Gi"), map[string]string{"scheduling.x-k8s.io/pod-group": "train"})
	}
	c.Reservation("web-failover", "app-0001", "2", 0, map[string]int64{"node-0000": 2, "node-0001": 2, "node-0002": 2})
	return s
}

// TestSaved looks at saved pages: they run their script under their own Content-Security-Policy and load nothing.
func TestSaved(t *testing.T) {
	small, large := saved(t)
	p := openTab(t, 1280, 900)
	for _, page := range []struct{ name, url string }{{"small", small}, {"large", large}} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(page.name+" "+scheme, func(t *testing.T) {
				p := p.with(t)
				p.media(prefers("color-scheme", scheme))
				p.open(page.url)
				require.Empty(t, ask[[]string](p, contrastScript), "WCAG AA: 4.5 to 1")
				require.Equal(t, scheme == "dark", ask[int](p, `Number(getComputedStyle(document.body).backgroundColor.match(/\d+/)[0])`) < 128)
				p.screenshot(page.name + "-" + scheme)
			})
		}
		t.Run(page.name+" is structured for a screen reader", func(t *testing.T) {
			p := p.with(t)
			p.open(page.url)
			require.Empty(t, ask[[]string](p, structureScript))
		})
		t.Run(page.name+" on a narrow screen", func(t *testing.T) {
			p := p.with(t)
			p.do(chromedp.EmulateViewport(400, 800))
			p.open(page.url)
			require.LessOrEqual(t, ask[int](p, `document.documentElement.scrollWidth`), 400, "tables scroll by themselves, the page does not")
			p.screenshot(page.name + "-narrow")
			p.do(chromedp.EmulateViewport(1280, 900))
		})
	}
	t.Run("by keyboard", func(t *testing.T) { testKeyboard(t, p.with(t), large) })
	t.Run("motion is reduced for who wants that", func(t *testing.T) {
		p := p.with(t)
		p.open(small)
		const animation = `(document.querySelector(".tile").classList.add("fresh"), getComputedStyle(document.querySelector(".tile")).animationName)`
		p.media(prefers("reduced-motion", "no-preference"))
		require.Equal(t, "fresh", ask[string](p, animation))
		p.media(prefers("reduced-motion", "reduce"))
		require.Equal(t, "none", ask[string](p, animation))
	})
	p.requireNoFaults()
}

func testKeyboard(t *testing.T, p *tab, url string) {
	p.open(url)
	const focused = `(() => { const e = document.activeElement; return [e.tagName, e.getAttribute("aria-label") || e.textContent, getComputedStyle(e).outlineStyle].join("|"); })()`
	p.press(kb.Tab)
	require.Equal(t, "A|Skip to the content|solid", ask[string](p, focused), "the first stop, and it is seen")
	require.GreaterOrEqual(t, ask[float64](p, `document.activeElement.getBoundingClientRect().left`), 0.0)
	p.press(kb.Enter)
	require.Equal(t, "main", ask[string](p, `document.activeElement.id`))

	p.press(kb.Tab)
	require.Equal(t, "BUTTON|node-0000: not ready, 25 pods, 39% of CPU|solid", ask[string](p, focused), "the first cell")
	p.press(kb.ArrowRight)
	require.True(t, strings.HasPrefix(ask[string](p, focused), "BUTTON|node-0003: serving"), "the next cell of the zone")
	require.Equal(t, ask[string](p, `document.activeElement.getAttribute("aria-label")`), p.text(".inspect.on"), "who sees is told too")
	p.press(kb.ArrowDown)
	below := ask[string](p, focused)
	p.press(kb.ArrowUp)
	require.True(t, strings.HasPrefix(ask[string](p, focused), "BUTTON|node-0003: serving"))
	require.NotEqual(t, below, ask[string](p, focused))
	p.press(kb.End)
	require.True(t, strings.HasPrefix(ask[string](p, focused), "BUTTON|node-1197"))
	p.press(kb.ArrowRight)
	require.True(t, strings.HasPrefix(ask[string](p, focused), "BUTTON|node-1197"), "it ends there")
	p.press(kb.Home)
	require.True(t, strings.HasPrefix(ask[string](p, focused), "BUTTON|node-0000"))
	p.press(kb.Tab)
	require.True(t, strings.HasPrefix(ask[string](p, focused), "BUTTON|node-0001"), "the next zone: a grid is one stop")

	stops := 0
	for ; stops < 60 && ask[string](p, `document.activeElement.tagName`) != "BODY"; stops++ {
		require.NotContains(t, ask[string](p, focused), "|none", "every stop is seen")
		p.press(kb.Tab)
	}
	require.Less(t, stops, 60, "there is a way out")
}

// serveNothing runs the command to its end.
func serveNothing(t *testing.T, zonewise string, args ...string) string {
	t.Helper()
	out, err := command(t, zonewise, args...)
	require.NoError(t, err, out)
	return out
}
