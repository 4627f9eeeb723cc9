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
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"zonewise.dev/manifests"
)

//go:embed access.yaml
var accessYAML []byte

//go:embed kwok.yaml
var kwokYAML []byte

// roles are the manifests to apply besides the definitions: the scheduler's account and roles, and the overlay's change to
// them for the lease of kube-scheduler.
var roles = []string{"rbac", "overlays/replace-kube-scheduler/role.yaml"}

// The scheduler's account, as in the manifests.
const (
	schedulerNamespace = "kube-system"
	schedulerAccount   = "zonewise-scheduler"
)

// decode reads every YAML document of content.
func decode(name string, content []byte) ([]*unstructured.Unstructured, error) {
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
		if len(object.Object) > 0 && object.GetKind() != "Kustomization" {
			objects = append(objects, object)
		}
	}
}

// readManifests reads the YAML files at and below root.
func readManifests(root string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	err := fs.WalkDir(manifests.FS, root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := fs.ReadFile(manifests.FS, path)
		if err != nil {
			return err
		}
		found, err := decode(path, content)
		objects = append(objects, found...)
		return err
	})
	return objects, err
}

// install creates the custom resources and the roles.
func install(ctx context.Context, config *rest.Config, c client.Client) error {
	found, err := readManifests("crds")
	if err != nil {
		return err
	}
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, object := range found {
		content, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, definition); err != nil {
			return fmt.Errorf("definition %s: %w", object.GetName(), err)
		}
		definitions = append(definitions, definition)
	}
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: definitions}); err != nil {
		return fmt.Errorf("install the custom resources: %w", err)
	}
	objects, err := decode("access.yaml", accessYAML)
	if err != nil {
		return err
	}
	for _, root := range roles {
		more, err := readManifests(root)
		if err != nil {
			return err
		}
		objects = append(objects, more...)
	}
	for _, object := range objects {
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("zonewise-demo"), client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// tokenLife is how long the scheduler's token lasts: longer than a demo is kept.
const tokenLife = 7 * 24 * time.Hour

// schedulerKubeconfig writes a kubeconfig of the scheduler's account into dir, and returns its path.
func schedulerKubeconfig(ctx context.Context, dir string, config *rest.Config, c client.Client) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: schedulerNamespace, Name: schedulerAccount}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLife / time.Second))}}
	if err := c.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("token of the account %s/%s: %w", schedulerNamespace, schedulerAccount, err)
	}
	const entry = "zonewise-demo"
	file := clientcmdapi.NewConfig()
	file.Clusters[entry] = &clientcmdapi.Cluster{Server: "https://" + hostOf(config), CertificateAuthorityData: config.CAData}
	file.AuthInfos[entry] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	file.Contexts[entry] = &clientcmdapi.Context{Cluster: entry, AuthInfo: entry}
	file.CurrentContext = entry
	path := filepath.Join(dir, Scheduler+".kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	return path, os.Chmod(path, 0o600)
}

// The minimum rate limit of the demo's scheduler. With upstream's default of 50 a second the limiter would dominate.
const (
	schedulerQPS   = 500
	schedulerBurst = 1000
)

// adaptProfile returns the scheduler configuration with the connection of this cluster. Everything else stays as it is.
func adaptProfile(profile []byte, kubeconfig string) ([]byte, error) {
	var config map[string]any
	if err := yaml.UnmarshalStrict(profile, &config); err != nil {
		return nil, fmt.Errorf("scheduler configuration: %w", err)
	}
	connection, _ := config["clientConnection"].(map[string]any)
	if connection == nil {
		connection = map[string]any{}
	}
	connection["kubeconfig"] = kubeconfig
	connection["qps"] = atLeast(connection["qps"], schedulerQPS)
	connection["burst"] = atLeast(connection["burst"], schedulerBurst)
	config["clientConnection"] = connection
	return yaml.Marshal(config)
}

func atLeast(value any, least float64) float64 {
	n, _ := value.(float64)
	return max(n, least)
}
