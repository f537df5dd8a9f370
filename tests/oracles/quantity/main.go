// Reads one JSON value per line and says how the API server decodes it as a resource.Quantity.
//
// Columns: the value, then either "error", or the canonical text, the count of nanos ("huge" when it has more than a
// thousand digits), whether MilliValue() is a multiple of 1000, Value() and the sign.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/big"
	"os"

	"k8s.io/apimachinery/pkg/api/resource"
)

func nanos(quantity resource.Quantity) string {
	decimal := quantity.AsDec()
	shift := 9 - int64(decimal.Scale())
	if shift > 1000 {
		return "huge"
	}
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(max(shift, -shift)), nil)
	if shift < 0 { // only a zero keeps more than nine decimals
		return new(big.Int).Quo(decimal.UnscaledBig(), power).String()
	}
	return power.Mul(power, decimal.UnscaledBig()).String()
}

func result(raw []byte) string {
	var quantity resource.Quantity
	if err := json.Unmarshal(raw, &quantity); err != nil {
		return "error"
	}
	integer := quantity.MilliValue()%1000 == 0
	return fmt.Sprintf("%s\t%s\t%t\t%d\t%d",
		quantity.String(), nanos(quantity.DeepCopy()), integer, quantity.Value(), quantity.Sign())
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<28)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		fmt.Fprintf(out, "%s\t%s\n", lines.Text(), result(lines.Bytes()))
		out.Flush()
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}
