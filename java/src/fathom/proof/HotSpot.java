package fathom.proof;

import com.sun.management.HotSpotDiagnosticMXBean;
import java.lang.management.CompilationMXBean;
import java.lang.management.ManagementFactory;
import java.util.Map;
import java.util.TreeMap;
import javax.management.JMException;
import javax.management.ObjectName;

/**
 * HotSpot's own account: its description, the flags in force (HotSpotDiagnosticMXBean), the time its compilers have
 * spent (CompilationMXBean), and the list of compiled methods with the tier of each (the diagnostic command
 * Compiler.codelist, in JDK 9 and later): 1 is C1 alone, 2 and 3 are C1 with counters for C2, 4 is C2.
 *
 * <p>It cannot tell when a method was compiled: the first iterations may have been interpreted. Their times show that.
 */
final class HotSpot {
    private static final String VIRTUAL_MACHINE_CALLS = "0";

    String prove(String mode, String[] hot) throws Mode.Contradiction {
        String info = System.getProperty("java.vm.info", "?");
        boolean interpreter = info.contains("interpreted mode");
        boolean tiered = flag("TieredCompilation", "false").equals("true");
        String stop = flag("TieredStopAtLevel", "4");
        CompilationMXBean compilation = ManagementFactory.getCompilationMXBean();
        long spent = compilation == null ? 0 : compilation.getTotalCompilationTime();
        TreeMap<String, Integer> tiers = new TreeMap<>();
        TreeMap<String, String> methods = new TreeMap<>();
        boolean listed = list(hot, tiers, methods);

        StringBuilder proof = new StringBuilder();
        proof.append(System.getProperty("java.vm.name")).append(' ').append(System.getProperty("java.vm.version"));
        proof.append(" (").append(info).append("); TieredCompilation ").append(tiered);
        proof.append(", TieredStopAtLevel ").append(stop).append("; compilers ran ").append(spent).append(" ms");
        if (listed) {
            proof.append("; compiled methods by tier ").append(tiers).append("; of the kernel");
            for (String method : hot) {
                String tier = methods.get(method);
                proof.append(' ').append(method).append(tier == null ? " none" : " " + tier);
            }
        } else {
            proof.append("; this JVM does not list what it compiled");
        }

        boolean holds;
        switch (mode) {
            case "jvm-int":
                holds = interpreter && spent == 0 && tiers.isEmpty();
                break;
            case "jvm-c1":
                holds = !interpreter && tiered && stop.equals("1") && only(tiers, "1");
                break;
            case "jvm-c2":
                holds = !interpreter && !tiered && only(tiers, "4");
                break;
            case "jvm-tiered":
                holds = !interpreter && tiered && stop.equals("4");
                break;
            default:
                throw new IllegalArgumentException("no such mode of a JVM: " + mode);
        }
        if (!holds) {
            throw new Mode.Contradiction("this JVM is not in mode " + mode + ": " + proof);
        }
        return proof.toString();
    }

    private static boolean only(Map<String, Integer> tiers, String tier) {
        return tiers.isEmpty() || (tiers.size() == 1 && tiers.containsKey(tier));
    }

    /** Returns a flag's value; `absent` if this JVM was built without it. */
    private static String flag(String name, String absent) {
        HotSpotDiagnosticMXBean bean = ManagementFactory.getPlatformMXBean(HotSpotDiagnosticMXBean.class);
        try {
            return bean.getVMOption(name).getValue();
        } catch (IllegalArgumentException e) {
            return absent;
        }
    }

    /**
     * Counts compiled methods by tier, and finds the tiers of the hot ones. Returns false if this JVM has no such list.
     */
    private static boolean list(String[] hot, Map<String, Integer> tiers, Map<String, String> methods) {
        String text;
        try {
            ObjectName commands = new ObjectName("com.sun.management:type=DiagnosticCommand");
            text = (String) ManagementFactory.getPlatformMBeanServer().invoke(commands, "compilerCodelist", null, null);
        } catch (JMException e) {
            return false;
        }
        // Each line: number, tier, state, method with its types, addresses.
        for (String line : text.split("\n")) {
            String[] words = line.trim().split("\\s+");
            if (words.length < 4 || !words[1].matches("[0-4]") || words[1].equals(VIRTUAL_MACHINE_CALLS)) {
                continue;
            }
            Integer count = tiers.get(words[1]);
            tiers.put(words[1], count == null ? 1 : count + 1);
            for (String method : hot) {
                if (words[3].startsWith(method + "(")) {
                    String known = methods.get(method);
                    methods.put(method, known == null ? "tier " + words[1] : known + "+" + words[1]);
                }
            }
        }
        return true;
    }
}
