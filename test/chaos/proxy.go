package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// proxy stands between one scheduler and the API server. It shows the scheduler leases as one whose clock is wrong sees and writes
// them.
type proxy struct {
	kubeconfig string // of a scheduler that goes this way
	web        *http.Server
	reverse    *httputil.ReverseProxy

	mu   sync.Mutex // guards skew
	skew time.Duration
}

// startProxy starts one to the API server of a kubeconfig, with its user. It ends with stop.
func startProxy(kubeconfig, dir, name string) (*proxy, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	upstream, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{kubeconfig: filepath.Join(dir, name+".kubeconfig")}
	silent := log.New(io.Discard, "", 0)
	p.reverse = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Accept-Encoding", "identity") // the API server compresses watches, too
		},
		Transport:      upstream,
		FlushInterval:  -1, // a watch's events are not to wait for more
		ModifyResponse: p.answer,
		// A connection that breaks is what the scheduler sees when the API server is away.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     silent,
	}
	p.web = &http.Server{Handler: p, ErrorLog: silent, ReadHeaderTimeout: time.Minute}
	go func() { _ = p.web.Serve(listener) }() // until stop
	own := clientcmdapi.NewConfig()
	own.Clusters["proxy"] = &clientcmdapi.Cluster{Server: "http://" + listener.Addr().String()}
	own.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	own.CurrentContext = "proxy"
	return p, clientcmd.WriteToFile(*own, p.kubeconfig)
}

func (p *proxy) stop() error { return p.web.Close() }

// setClock sets by how much the scheduler's clock goes ahead, as leases show it.
func (p *proxy) setClock(ahead time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skew = ahead
}

func (p *proxy) clock() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.skew
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if resourceOf(r.URL) == "leases" && r.Method != http.MethodGet {
		if err := p.stampRequest(r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	p.reverse.ServeHTTP(w, r)
}

// resourceOf is the resource of a request, without its subresource.
func resourceOf(u *url.URL) string {
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	switch parts[0] {
	case "api":
		parts = parts[min(2, len(parts)):]
	case "apis":
		parts = parts[min(3, len(parts)):]
	default:
		return ""
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 {
		return ""
	}
	return parts[0]
}

func watches(u *url.URL) bool {
	switch u.Query().Get("watch") {
	case "", "0", "false":
		return false
	}
	return true
}

// answer implements httputil.ReverseProxy's ModifyResponse.
func (p *proxy) answer(response *http.Response) error {
	u := response.Request.URL
	if response.StatusCode >= http.StatusMultipleChoices || resourceOf(u) != "leases" || watches(u) {
		return nil
	}
	content, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if content, err = stamped(content, response.Header.Get("Content-Type"), -p.clock()); err != nil {
		return err
	}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	response.Header.Set("Content-Length", fmt.Sprint(len(content)))
	return nil
}

// stampRequest has a lease say the time of the scheduler's clock.
func (p *proxy) stampRequest(r *http.Request) error {
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if content, err = stamped(content, r.Header.Get("Content-Type"), p.clock()); err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	return nil
}

// stamped is a lease, encoded as it was, with its times moved.
func stamped(content []byte, contentType string, by time.Duration) ([]byte, error) {
	if by == 0 {
		return content, nil
	}
	object, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(content, nil, nil)
	if err != nil {
		return nil, err
	}
	lease, ok := object.(*coordinationv1.Lease)
	if !ok {
		return content, nil
	}
	for _, t := range []*metav1.MicroTime{lease.Spec.RenewTime, lease.Spec.AcquireTime} {
		if t != nil {
			t.Time = t.Add(by)
		}
	}
	mediaType, _, _ := strings.Cut(contentType, ";")
	info, ok := runtime.SerializerInfoForMediaType(clientgoscheme.Codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		return nil, fmt.Errorf("a lease of type %q", contentType)
	}
	return runtime.Encode(clientgoscheme.Codecs.EncoderForVersion(info.Serializer, coordinationv1.SchemeGroupVersion), lease)
}
