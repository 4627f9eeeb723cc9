package cluster

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

//go:embed access.yaml
var accessYAML []byte

//go:embed kwok.yaml
var kwokYAML []byte

// The account that the scheduler runs under: the one of the manifests.
const (
	schedulerNamespace = "kube-system"
	schedulerAccount   = "zonewise-scheduler"
)

// decodeObjects reads every YAML document of content.
func decodeObjects(name string, content []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// readObjects reads the YAML files at and below root, and passes over
// kustomizations, which are no objects.
func readObjects(files fs.FS, root string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	err := fs.WalkDir(files, root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		found, err := decodeObjects(path, content)
		for _, object := range found {
			if object.GetKind() != "Kustomization" {
				objects = append(objects, object)
			}
		}
		return err
	})
	return objects, err
}

// apply creates the objects, or replaces those that exist, and waits until the
// definitions among them are established.
func apply(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		err := c.Create(ctx, object)
		if apierrors.IsAlreadyExists(err) {
			existing := object.DeepCopy()
			if err = c.Get(ctx, client.ObjectKeyFromObject(object), existing); err == nil {
				object.SetResourceVersion(existing.GetResourceVersion())
				err = c.Update(ctx, object)
			}
		}
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	for _, object := range objects {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return false, err
			}
			return established(object), nil
		})
		if err != nil {
			return fmt.Errorf("wait for the definition %s: %w", object.GetName(), err)
		}
	}
	return nil
}

func established(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == "Established" {
			return condition["status"] == string(metav1.ConditionTrue)
		}
	}
	return false
}

// schedulerToken asks for a token of the scheduler's account.
func schedulerToken(ctx context.Context, c client.Client) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: schedulerNamespace, Name: schedulerAccount}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(validity / time.Second)),
	}}
	if err := c.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("token of the account %s/%s: %w", schedulerNamespace, schedulerAccount, err)
	}
	return request.Status.Token, nil
}

// writeKubeconfig writes a kubeconfig for the API server at port and returns
// its path.
func writeKubeconfig(dir, name string, ca []byte, port int, user *clientcmdapi.AuthInfo) (string, error) {
	const entry = "zonewise-demo"
	config := clientcmdapi.NewConfig()
	config.Clusters[entry] = &clientcmdapi.Cluster{Server: "https://" + address(port), CertificateAuthorityData: ca}
	config.AuthInfos[entry] = user
	config.Contexts[entry] = &clientcmdapi.Context{Cluster: entry, AuthInfo: entry}
	config.CurrentContext = entry
	path := filepath.Join(dir, name+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	return path, os.Chmod(path, 0o600)
}

func withCertificate(p *pair) *clientcmdapi.AuthInfo {
	return &clientcmdapi.AuthInfo{ClientCertificateData: p.cert, ClientKeyData: p.key}
}

// adminConfig reaches the API server without a rate limit of its own.
func adminConfig(certs *pki, port int) *rest.Config {
	return &rest.Config{
		Host: "https://" + address(port),
		TLSClientConfig: rest.TLSClientConfig{
			CAData: certs.authority.pem, CertData: certs.admin.cert, KeyData: certs.admin.key,
		},
		QPS:       -1,
		UserAgent: "zonewise-demo",
	}
}
