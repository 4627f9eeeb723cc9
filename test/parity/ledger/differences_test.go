package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// These are the ways of kube-scheduler's cache that the ledger does not copy; see doc.go. When one of them
// changes upstream, its test fails and the exception can go.

func zonedNode(name, zone string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{v1.LabelTopologyZone: zone}}}
}

func (p *pair) orders(t *testing.T) (theirs, ours []string) {
	require.NoError(t, p.cache.UpdateSnapshot(p.logger, p.snapshot))
	p.ledger.UpdateSnapshot(p.kept)
	infos, err := p.snapshot.NodeInfos().List()
	require.NoError(t, err)
	for _, info := range infos {
		theirs = append(theirs, info.Node().Name)
	}
	for _, n := range p.kept.Nodes() {
		ours = append(ours, n.Node.Name)
	}
	return theirs, ours
}

func TestARelabelledNodeMovesAtOnce(t *testing.T) {
	p := newPair(t.Context())
	for _, n := range []*v1.Node{zonedNode("n1", "a"), zonedNode("n2", "a"), zonedNode("n3", "b")} {
		p.setNode(n)
	}
	theirs, ours := p.orders(t)
	require.Equal(t, []string{"n1", "n3", "n2"}, theirs)
	require.Equal(t, theirs, ours)

	p.setNode(zonedNode("n1", "b"))
	theirs, ours = p.orders(t)
	require.Equal(t, []string{"n1", "n3", "n2"}, theirs, "the cache keeps the old order")
	require.Equal(t, []string{"n2", "n3", "n1"}, ours)

	p.setNode(zonedNode("n4", "b"))
	theirs, ours = p.orders(t)
	require.Equal(t, theirs, ours, "until a node comes or goes")
}

func TestANodeThatComesBackMovesAtOnce(t *testing.T) {
	p := newPair(t.Context())
	for _, n := range []*v1.Node{zonedNode("n1", "a"), zonedNode("n2", "b")} {
		p.setNode(n)
	}
	p.orders(t)
	p.removeNode(t, "n1")
	p.setNode(zonedNode("n1", "a"))
	theirs, ours := p.orders(t)
	require.Equal(t, []string{"n1", "n2"}, theirs, "the cache keeps the old order")
	require.Equal(t, []string{"n2", "n1"}, ours, "its zone is the last that came")
}

func TestANodeThatIsFirstHeardOfByAnUpdateIsThere(t *testing.T) {
	p := newPair(t.Context())
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}, Spec: v1.PodSpec{NodeName: "n1"}}
	p.add(t, pod)
	n := zonedNode("n1", "a")
	p.cache.UpdateNode(p.logger, n, n)
	p.ledger.UpdateNode(n)

	theirs, ours := p.orders(t)
	require.Empty(t, theirs)
	require.Equal(t, []string{"n1"}, ours)
	require.Equal(t, []*v1.Pod{pod}, p.kept.Nodes()[0].Pods)
}
