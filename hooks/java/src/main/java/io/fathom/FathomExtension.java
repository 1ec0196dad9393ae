package io.fathom;

import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/** For JUnit 5: a test's parameter of type {@link FathomExtension.Counter} counts since the test began. */
public final class FathomExtension implements ParameterResolver {
    /** What the test has asked of files so far. */
    public static final class Counter {
        private Counts before = Fathom.read();

        /** The counts since the test began, or since {@link #reset}. */
        public Counts counts() {
            return Fathom.read().less(before);
        }

        /** Forgets what was counted. */
        public void reset() {
            before = Fathom.read();
        }

        /** Calls that wait for the medium. */
        public long fsyncs() {
            return counts().fsyncs();
        }
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == Counter.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        return new Counter();
    }
}
