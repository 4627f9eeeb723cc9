package informertest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// lateWatch begins the watch of nodes a second after it was asked for.
type lateWatch struct{ *fake.Clientset }

type lateCore struct{ corev1client.CoreV1Interface }

type lateNodes struct{ corev1client.NodeInterface }

func (c lateWatch) CoreV1() corev1client.CoreV1Interface { return lateCore{c.Clientset.CoreV1()} }
func (c lateCore) Nodes() corev1client.NodeInterface     { return lateNodes{c.CoreV1Interface.Nodes()} }

func (n lateNodes) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	time.Sleep(time.Second)
	return n.NodeInterface.Watch(ctx, options)
}

// TestStart: a deletion after it arrives, although the watch began long after the list.
func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		ctx, cancel := context.WithCancel(context.Background())
		factory := informers.NewSharedInformerFactory(lateWatch{client}, 0)
		nodes := factory.Core().V1().Nodes().Lister()
		Start(ctx, t, factory, client)

		require.NoError(t, client.CoreV1().Nodes().Delete(ctx, "n1", metav1.DeleteOptions{}))
		synctest.Wait()
		_, err := nodes.Get("n1")
		require.Error(t, err)
		cancel()
		factory.Shutdown()
	})
}
