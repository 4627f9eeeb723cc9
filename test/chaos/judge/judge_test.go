package judge

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"zonewise.dev/test/chaos/history"
)

// TestJudges: each judge finds what was forged for it, and nothing in what is in order.
func TestJudges(t *testing.T) {
	for _, c := range []struct {
		name, judge string
		record      *history.Record
		finds       string // "" when it is in order
	}{
		{"as many as fit", "Overcommitted", newStory().bound("p", "2", "a1", "one").bound("q", "2", "a1", "one").ends(20, 21), ""},
		{"one too many", "Overcommitted", newStory().bound("p", "2", "a1", "one").bound("q", "3", "a1", "two").ends(20, 21), "pod q takes node a1"},
		{"beside one whose bind is said to have failed", "Overcommitted", newStory().bound("p", "2", "a1", "one").conflict().at(4).bound("q", "3", "a1", "one").ends(20, 21), ""},
		{"long after that", "Overcommitted", newStory().bound("p", "2", "a1", "one").conflict().at(6).bound("q", "3", "a1", "one").ends(20, 21), "pod q takes node a1"},
		{"after one has gone", "Overcommitted", newStory().bound("p", "2", "a1", "one").delete("p", "").bound("q", "3", "a1", "one").ends(20, 21), ""},
		{"to a node that is gone", "Overcommitted", newStory().bound("p", "2", "gone", "one").bound("q", "3", "gone", "one").ends(20, 21), ""},

		{"once", "BoundTwice", newStory().bound("p", "1", "a1", "one").bind("p", "a1", "").only(1).ends(20, 21), ""},
		{"two binds", "BoundTwice", newStory().bound("p", "1", "a1", "one").bind("p", "a1", "two").ends(20, 21), "pod p was bound to a1 by one and to a1 by two"},
		{"moved", "BoundTwice", newStory().bound("p", "1", "a1", "one").bind("p", "b1", "one").only(1).ends(20, 21), "pod p is on node b1"},

		{"whole", "PartialGangs", newStory().group("g", 2).members("g", 2, 1).at(90).ends(80, 90), ""},
		{"for a moment", "PartialGangs", newStory().group("g", 2).members("g", 1, 1).at(20).bind("g-1", "b1", "one").ends(80, 90), ""},
		{"for long", "PartialGangs", newStory().group("g", 2).members("g", 1, 1).at(50).bind("g-1", "b1", "one").ends(80, 90), "gang shop/g was bound in part for 50s"},
		{"to the end", "PartialGangs", newStory().group("g", 2).members("g", 1, 1).ends(80, 90), "gang shop/g was bound in part"},
		{"while there is a fault", "PartialGangs", newStory().group("g", 2).members("g", 1, 1).at(50).bind("g-1", "b1", "one").fault("etcd killed", 10, 35).ends(80, 90), ""},
		{"that lost a member", "PartialGangs", newStory().group("g", 2).members("g", 2, 0).at(20).delete("g-1", "").pod("g-2", "1", inGang("g")).ends(80, 90), ""},
		{"whose quorum was raised", "PartialGangs", newStory().group("g", 2).members("g", 2, 1).at(20).group("g", 3).ends(80, 90), ""},
		{"with too few members", "PartialGangs", newStory().members("g", 1, 0).group("g", 2).ends(80, 90), ""},

		{"within the cap", "Caps", newStory().policy("web", 2).at(20).bound("p", "1", "a1", "one", labelled("web")).bound("q", "1", "a1", "one", labelled("web")).ends(30, 31), ""},
		{"over the cap", "Caps", newStory().policy("web", 1).at(20).bound("p", "1", "a1", "one", labelled("web")).bound("q", "1", "a1", "one", labelled("web")).ends(30, 31), "pod q is number 2 in zone a"},
		{"before it can be known", "Caps", newStory().at(10).policy("web", 1).at(20).bound("p", "1", "a1", "one", labelled("web")).bound("q", "1", "a1", "one", labelled("web")).ends(30, 31), ""},
		{"what another one did last", "Caps", newStory().policy("web", 1).at(20).bound("p", "1", "a1", "one", labelled("web")).at(25).bound("q", "1", "a1", "two", labelled("web")).ends(30, 31), ""},
		{"what another one did long ago", "Caps", newStory().policy("web", 1).at(20).bound("p", "1", "a1", "one", labelled("web")).at(40).bound("q", "1", "a1", "two", labelled("web")).ends(50, 51), "pod q is number 2"},
		{"on a node that has moved", "Caps", newStory().policy("web", 1).at(20).bound("p", "1", "a1", "one", labelled("web")).at(30).node("a1", "b").bound("q", "1", "b1", "one", labelled("web")).ends(30, 31), ""},

		{"even", "MaxSkews", newStory().at(20).bound("p", "1", "a1", "one", spreadOver("web")).bound("q", "1", "b1", "one", spreadOver("web")).ends(50, 51), ""},
		{"uneven", "MaxSkews", newStory().at(20).bound("p", "1", "a1", "one", spreadOver("web")).at(21).bound("q", "1", "a1", "one", spreadOver("web")).ends(50, 51), "pod q is number 2 in zone a"},
		{"uneven since others are on their way", "MaxSkews", newStory().at(20).bound("p", "1", "a1", "one", spreadOver("web")).
			pod("r", "1", spreadOver("web")).pod("s", "1", spreadOver("web")).bound("q", "1", "a1", "one", spreadOver("web")).
			at(22).bind("r", "b1", "one").bind("s", "c1", "one").ends(50, 51), ""},
		{"uneven since one has just gone", "MaxSkews", newStory().at(20).bound("p", "1", "a1", "one", spreadOver("web")).bound("r", "1", "b1", "one", spreadOver("web")).
			bound("s", "1", "c1", "one", spreadOver("web")).at(40).delete("r", "").at(41).bound("q", "1", "a1", "one", spreadOver("web")).ends(50, 51), ""},
		{"uneven since one went long ago", "MaxSkews", newStory().at(20).bound("p", "1", "a1", "one", spreadOver("web")).bound("r", "1", "b1", "one", spreadOver("web")).
			bound("s", "1", "c1", "one", spreadOver("web")).at(40).delete("r", "").at(60).bound("q", "1", "a1", "one", spreadOver("web")).ends(50, 51), "pod q is number 2"},
		{"uneven beside one that a killed leader may have placed", "MaxSkews", newStory().at(20).bound("p", "1", "a1", "one", spreadOver("web")).
			pod("r", "1", spreadOver("web")).pod("s", "1", spreadOver("web")).at(21).bound("q", "1", "a1", "one", spreadOver("web")).
			fault("leader killed", 22, 30).ends(50, 51), ""},

		{"by the leader", "StaleWrites", newStory().leads("one").bound("p", "1", "a1", "one").leads("two").bound("q", "1", "a1", "two").ends(20, 21), ""},
		{"by the former one", "StaleWrites", newStory().leads("one").bound("p", "1", "a1", "one").leads("two").bound("q", "1", "a1", "one").ends(20, 21), "pod q was written by one while two led"},
		{"begun by the former one", "StaleWrites", newStory().leads("one").bound("p", "1", "a1", "one").at(10).leads("two").bound("q", "1", "a1", "one").received(5).ends(20, 21), ""},
		{"begun too late", "StaleWrites", newStory().leads("one").bound("p", "1", "a1", "one").at(10).leads("two").bound("q", "1", "a1", "one").received(11).ends(20, 21), "pod q was written by one while two led"},
		{"begun by one before the former one", "StaleWrites", newStory().leads("one").leads("two").at(10).leads("three").bound("q", "1", "a1", "one").received(5).ends(20, 21), "pod q was written by one while three led"},
		{"by one that never led", "StaleWrites", newStory().bound("p", "1", "a1", "one").ends(20, 21), "pod p was written by one while none led"},

		{"beside the slots", "ForeignSlots", newStory().slots("web", "a1", 2, 0).at(20).bound("p", "2", "a1", "one").at(40).slots("web", "a1", 2, 0).ends(50, 51), ""},
		{"into a slot", "ForeignSlots", newStory().slots("web", "a1", 2, 0).at(20).bound("p", "3", "a1", "one").at(40).slots("web", "a1", 2, 0).ends(50, 51), "pod p takes node a1"},
		{"the owner", "ForeignSlots", newStory().slots("web", "a1", 2, 0).at(20).bound("p", "3", "a1", "one", labelled("web")).ends(50, 51), ""},
		{"a higher priority", "ForeignSlots", newStory().slots("web", "a1", 2, 0).at(20).bound("p", "3", "a1", "one", ofPriority(1)).ends(50, 51), ""},
		{"into a slot that moved", "ForeignSlots", newStory().slots("web", "a1", 2, 0).at(20).bound("p", "3", "a1", "one").at(21).slots("web", "b1", 2, 0).ends(50, 51), ""},
		{"beside a used slot", "ForeignSlots", newStory().slots("web", "a1", 2, 0).at(20).bound("o", "1", "a1", "one", labelled("web")).bound("p", "2", "a1", "one").at(21).slots("web", "a1", 2, 1).ends(50, 51), ""},

		{"for a higher priority", "Evictions", newStory().bound("p", "1", "a1", "one", ofPriority(-1)).pod("q", "1").delete("p", "one").ends(20, 21), ""},
		{"for no pod", "Evictions", newStory().bound("p", "1", "a1", "one").pod("q", "1").delete("p", "one").ends(20, 21), "pod p of priority 0 was deleted by one"},
		{"by others", "Evictions", newStory().bound("p", "1", "a1", "one").delete("p", "").ends(20, 21), ""},

		{"two patches", "RepeatedWrites", newStory().patch("one", 1).patch("one", 2).ends(20, 21), ""},
		{"a patch of nothing", "RepeatedWrites", newStory().patch("one", 1).patch("one", 1).ends(20, 21), "one repeated a patch"},
		{"kube-scheduler's patch of nothing", "RepeatedWrites", newStory().patch("one", 1).kubeSchedulers().patch("one", 1).kubeSchedulers().ends(20, 21), ""},

		{"what does not fit", "Unbound", newStory().pod("p", "5").ends(20, 21), ""},
		{"what fits", "Unbound", newStory().pod("p", "3").ends(20, 21), "pod p "},
		{"what fits, too late", "Unbound", newStory().bound("p", "3", "a1", "one").ends(20, 90), "all that fits was bound after 1m10s"},
		{"into held room", "Unbound", newStory().slots("web", "a1", 4, 0).pod("p", "3").bound("q", "4", "b1", "one").bound("r", "4", "c1", "one").ends(20, 21), ""},
		{"beyond the cap", "Unbound", newStory().policy("web", 1).bound("p", "1", "a1", "one", labelled("web")).bound("q", "1", "b1", "one", labelled("web")).
			bound("r", "1", "c1", "one", labelled("web")).pod("s", "1", labelled("web")).ends(20, 21), ""},
		{"into a full zone", "Unbound", newStory().bound("p", "1", "a1", "one", spreadOver("web")).bound("q", "1", "b1", "one", spreadOver("web")).
			bound("r", "4", "c1", "one").pod("s", "1", spreadOver("web")).ends(20, 21), ""},
		{"into the emptiest zone", "Unbound", newStory().bound("p", "1", "a1", "one", spreadOver("web")).bound("q", "1", "b1", "one", spreadOver("web")).
			pod("s", "1", spreadOver("web")).ends(20, 21), "pod s "},
		{"a gang that does not fit", "Unbound", newStory().group("g", 13).members("g", 0, 13).ends(20, 21), ""},
		{"a gang that fits", "Unbound", newStory().group("g", 12).members("g", 0, 12).ends(20, 21), "gang shop/g has 0 of 12 members bound"},
		{"a gang with too few members", "Unbound", newStory().group("g", 12).members("g", 0, 11).ends(20, 21), ""},

		{"nothing is left", "Leftovers", newStory().ends(20, 21), ""},
		{"an assumed pod", "Leftovers", newStory().left("zonewise_reservecache_assumed_pods", 1).ends(20, 21), "zonewise_reservecache_assumed_pods is 1"},
		{"goroutines", "Leftovers", newStory().left("go_goroutines", 900).ends(20, 21), "900 goroutines"},
		{"a nomination", "Leftovers", newStory().nominated("p", "a1").ends(20, 21), "pod p waits and is nominated to a1"},
	} {
		t.Run(c.judge+"/"+c.name, func(t *testing.T) {
			// What is judged is what a file has.
			file := filepath.Join(t.TempDir(), "record")
			require.NoError(t, c.record.Save(file))
			record, err := history.Load(file)
			require.NoError(t, err)
			for _, v := range All(record) {
				if v.Judge != c.judge {
					continue
				}
				if c.finds == "" {
					require.Empty(t, v.Found)
					return
				}
				require.Len(t, v.Found, 1)
				require.Contains(t, v.Found[0], c.finds)
				require.True(t, Failed(All(record)))
				return
			}
			require.Fail(t, "there is no such judge")
		})
	}
}

// TestAnEmptyClusterIsInOrder: no judge finds something where nothing was.
func TestAnEmptyClusterIsInOrder(t *testing.T) {
	require.False(t, Failed(All(newStory().ends(20, 21))))
}
