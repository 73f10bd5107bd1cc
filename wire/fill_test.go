package wire

import (
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fill sets every field of a request to something drawn, lists up to three elements at each level. Tags stay empty:
// they have a test of their own.
func fill(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "set") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[kmsg.Tags]() {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Version" {
				fill(t, v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes"))
			return
		}
		n := rapid.IntRange(0, 3).Draw(t, "n")
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(t, v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(uint64(rapid.Byte().Draw(t, "uuid")))
		}
	case reflect.String:
		v.SetString(rapid.StringN(0, 20, 40).Draw(t, "text"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Float64:
		v.SetFloat(rapid.Float64().Draw(t, "float"))
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, "int"))
	default:
		t.Fatalf("no rule for %s", v.Type())
	}
}

// request draws a request of any key and version that is parsed.
func request(t *rapid.T) (kmsg.Request, Header) {
	a := rapid.SampledFrom(apis).Draw(t, "api")
	h := Header{Key: a.Key, Version: int16(rapid.IntRange(int(a.Min), int(a.Max)).Draw(t, "version"))}
	if h.Key == KeyProduce {
		h.Version = max(h.Version, produceMin)
	}
	r := kmsg.RequestForKey(h.Key)
	r.SetVersion(h.Version)
	fill(t, reflect.ValueOf(r).Elem())
	r.SetVersion(h.Version)
	if p, ok := r.(*kmsg.ListConfigResourcesRequest); ok && h.Version == 0 {
		p.ResourceTypes = nil
	}
	return r, h
}

// versions calls fn for every key and version that is parsed.
func versions(fn func(h Header)) {
	for _, a := range apis {
		for v := a.Min; v <= a.Max; v++ {
			if Served(a.Key, v) {
				fn(Header{Key: a.Key, Version: v})
			}
		}
	}
}
