// Writes tests/data/proxies.tsv: by which proxy Go's HTTP clients, such as kubectl, reach a server.
//
// In: one case a line, as a JSON object with `server`, a URL, and `environment`, its variables.
// Out: the same line, a tab, and as JSON the list of scheme, address, user and password of the proxy.
// Without credentials, user and password are null. The whole is null for a direct connection, and
// "refused" if httpproxy refuses to choose.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"net/url"
	"os"

	"golang.org/x/net/http/httpproxy"
)

type proxyCase struct {
	Server      string            `json:"server"`
	Environment map[string]string `json:"environment"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var given proxyCase
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			log.Fatal(err)
		}
		result, _ := json.Marshal(answer(given))
		fmt.Printf("%s\t%s\n", lines.Text(), result)
	}
}

func answer(given proxyCase) any {
	server, err := url.Parse(given.Server)
	if err != nil {
		log.Fatal(err)
	}
	os.Clearenv()
	for name, value := range given.Environment {
		os.Setenv(name, value)
	}
	proxy, err := httpproxy.FromEnvironment().ProxyFunc()(server)
	switch {
	case err != nil:
		return "refused"
	case proxy == nil:
		return nil
	case proxy.User == nil:
		return []any{proxy.Scheme, proxy.Host, nil, nil}
	}
	password, _ := proxy.User.Password()
	return []any{proxy.Scheme, proxy.Host, proxy.User.Username(), password}
}
