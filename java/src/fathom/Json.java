package fathom;

/** The few forms of JSON that a workload prints. */
public final class Json {
    private Json() {}

    public static String text(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }

    public static String mark(String name, String text) {
        return "{\"mark\":" + text(name) + ",\"text\":" + text(text) + "}\n";
    }

    public static String sample(String metric, String unit, long timeNs, double value) {
        String number = value == Math.rint(value) && Math.abs(value) < 9e15 ? Long.toString((long) value) : "" + value;
        return "{\"metric\":" + text(metric) + ",\"unit\":" + text(unit) + ",\"t\":" + timeNs + ",\"v\":" + number
                + "}\n";
    }
}
